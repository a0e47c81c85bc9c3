"""What is learned and counted, done again the slow way: plain Python or numpy over the joint, no code shared.

Rows are tuples of Python ints, one a network variable, -1 where missing. Nothing here is fast, and nothing is clever.
"""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pyarrow as pa

from pipeline.decompose import decompose
from pipeline.markov import MarkovNetwork
from pipeline.network import Network
from tasks.instances import InstanceTable
from tasks.markov_terms import LocalTerms, Penalty, collect_complete, make_data_term, make_model, plan_model
from tasks.projection import Projection, merge, project
from tasks.reading import Partition
from tasks.scopes import MAX_ENTRIES, pack_scopes
from tasks.solving import Problem, prepare
from tasks.subnetwork import SubNetwork, make_sub_network

MISSING = -1
# Every way in which a dataset can be incomplete. "at random" blanks any entry, "mar" depends on an observed value.
KINDS = ("at random", "partly", "hidden", "mar", "missing rows", "complete", "single row", "leaves")
# "mixture" has hidden, partly observed and always observed variables at once.
FIELD_KINDS = ("complete", "partly", "at random", "hidden", "mixture", "mar", "missing rows", "single row")


# --- networks and data ---------------------------------------------------------------------------------------------


def random_network(rng: random.Random, n: int, max_states: int = 3, max_parents: int = 2) -> Network:
    """A network of n variables, named out of order so that neither names nor positions are topological."""
    order = rng.sample(range(n), n)
    parents: list[tuple[int, ...]] = [()] * n
    for k, v in enumerate(order):
        # Few roots: where families stand alone there is nothing to get wrong.
        least = min(k, 1) if rng.random() < 0.8 else 0
        parents[v] = tuple(rng.sample(order[:k], rng.randint(least, min(k, max_parents))))
    states = [tuple(f"s{x}" for x in range(rng.randint(2, max_states))) for _ in range(n)]
    tables = [random_table(rng, [len(states[j]) for j in (*parents[v], v)]) for v in range(n)]
    names = tuple(f"v{x}" for x in rng.sample(range(n), n))
    return Network("random", names, tuple(states), tuple(parents), tuple(tables))


def random_table(rng: random.Random, shape: list[int]) -> np.ndarray:
    table = np.array([rng.expovariate(1.0) + 0.05 for _ in range(math.prod(shape))]).reshape(shape)
    return table / table.sum(axis=-1, keepdims=True)


def structure(network: Network, seed: int) -> Network:
    """The same network with other parameters."""
    rng = random.Random(seed)
    tables = tuple(random_table(rng, list(t.shape)) for t in network.tables)
    return Network(network.name, network.variables, network.states, network.parents, tables)


def sample(rng: random.Random, network: Network, n_rows: int) -> list[tuple[int, ...]]:
    """Complete rows of a network."""
    rows = []
    for _ in range(n_rows):
        row = [MISSING] * len(network.variables)
        for v in network.topological_order:
            weights = network.tables[v][tuple(row[p] for p in network.parents[v])]
            row[v] = rng.choices(range(len(weights)), weights)[0]
        rows.append(tuple(row))
    return rows


def leaves(network: Network) -> set[int]:
    return set(range(len(network.variables))) - {p for parents in network.parents for p in parents}


def blank(
    rng: random.Random, network: Network | MarkovNetwork, rows: list[tuple[int, ...]], kind: str
) -> list[tuple[int, ...]]:
    """Rows with missing entries; "complete" leaves them as they are."""
    n = len(network.variables)
    some = set(rng.sample(range(n), max(1, n // 2)))
    witness = rng.randrange(n)
    if kind == "single row":
        rows = rows[:1]

    def is_missing(row: int, v: int, value: int, full: tuple[int, ...]) -> bool:
        if kind in ("at random", "single row"):
            return rng.random() < 0.4
        if kind == "partly":
            return v in some and rng.random() < 0.5
        if kind == "hidden":
            return v in some and v != witness
        if kind == "mar":
            return v != witness and rng.random() < (0.7 if full[witness] == 0 else 0.1)
        if kind == "missing rows":
            return row % 3 == 0 or rng.random() < 0.2
        if kind == "leaves":
            return v in leaves(network) and rng.random() < 0.5
        if kind == "mixture":
            return v in some and v != witness and (v % 2 == 0 or rng.random() < 0.5)
        assert kind == "complete"
        return False

    return [tuple(MISSING if is_missing(i, v, x, row) else x for v, x in enumerate(row)) for i, row in enumerate(rows)]


def incomplete_data(seed: int, n: int = 5, n_rows: int = 40, kind: str = "at random", **options):
    """A random network, other parameters to begin from, and rows of it with something missing."""
    rng = random.Random(seed)
    network = random_network(rng, n, **options)
    rows = blank(rng, network, sample(rng, network, n_rows), kind)
    return network, structure(network, seed + 1), rows


def as_table(network: Network | MarkovNetwork, rows: list[tuple[int, ...]], **more) -> pa.Table:
    """An Arrow table of state names, null where missing; `more` are further columns."""
    columns = {
        name: pa.array([None if row[v] < 0 else network.states[v][row[v]] for row in rows], pa.string())
        for v, name in enumerate(network.variables)
    }
    return pa.table({**columns, **{k: pa.array(c) for k, c in more.items()}})


# --- enumeration ---------------------------------------------------------------------------------------------------


def completions(network: Network, row: tuple[int, ...]):
    """Every full assignment that agrees with a row."""
    return itertools.product(*([x] if x >= 0 else range(len(s)) for x, s in zip(row, network.states, strict=True)))


def parameter(network: Network, v: int, full: tuple[int, ...]) -> float:
    return float(network.tables[v][(*(full[p] for p in network.parents[v]), full[v])])


def log_probability(network: Network, row: tuple[int, ...]) -> float:
    """Log of the probability of a row's observed entries, nats; in logs throughout, so that nothing underflows."""
    logs = []
    for full in completions(network, row):
        factors = [parameter(network, v, full) for v in range(len(row))]
        if all(f > 0 for f in factors):
            logs.append(math.fsum(math.log(f) for f in factors))
    if not logs:
        return -math.inf
    top = max(logs)
    return top + math.log(math.fsum(math.exp(x - top) for x in logs))


def log_likelihood(network: Network, rows, weights=None) -> float:
    """Nats, summed over rows."""
    known: dict[tuple[int, ...], float] = {}
    for row in rows:
        if row not in known:
            known[row] = log_probability(network, row)
    return math.fsum(known[row] * w for row, w in zip(rows, weights or [1] * len(rows), strict=True) if w)


def barren(network: Network, row: tuple[int, ...]) -> set[int]:
    """Missing variables without an observed descendant."""
    children = {v: [c for c, p in enumerate(network.parents) if v in p] for v in range(len(row))}

    def seen_below(v: int) -> bool:
        return any(row[c] >= 0 or seen_below(c) for c in children[v])

    return {v for v, x in enumerate(row) if x < 0 and not seen_below(v)}


def expected_counts(network: Network, rows, weights=None, drop_barren: bool = False) -> list[np.ndarray]:
    """Expected counts by variable, in the shape of its table; barren variables' families left out if told."""
    counts = [np.zeros(t.shape) for t in network.tables]
    distinct: Counter = Counter()
    for row, w in zip(rows, weights or [1] * len(rows), strict=True):
        distinct[row] += w
    for row, w in distinct.items():
        if not w:
            continue
        log_z = log_probability(network, row)
        left_out = barren(network, row) if drop_barren else set()
        for full in completions(network, row):
            factors = [parameter(network, v, full) for v in range(len(row))]
            if not all(f > 0 for f in factors):
                continue
            share = w * math.exp(math.fsum(math.log(f) for f in factors) - log_z)
            for v in set(range(len(row))) - left_out:
                counts[v][(*(full[p] for p in network.parents[v]), full[v])] += share
    return counts


def maximise(network: Network, counts: list[np.ndarray], prior: float = 1.0) -> Network:
    """Equation 2.1, a configuration without mass uniform."""
    tables = []
    for count in counts:
        table = np.full(count.shape, 1.0 / count.shape[-1])
        for u in itertools.product(*(range(k) for k in count.shape[:-1])):
            pseudo = [float(c) + prior - 1.0 for c in count[u]]
            if math.fsum(pseudo) > 0:
                table[u] = [x / math.fsum(pseudo) for x in pseudo]
        tables.append(table)
    return Network(network.name, network.variables, network.states, network.parents, tuple(tables))


def log_prior(network: Network, prior: float) -> float:
    return math.fsum((prior - 1.0) * math.log(float(x)) for t in network.tables for x in t.ravel() if prior != 1.0)


def em(network: Network, rows, iterations: int, prior: float = 1.0, drop_barren: bool = False, weights=None):
    """EM by enumeration: the networks at the start and after each iteration."""
    path = [network]
    for _ in range(iterations):
        path.append(maximise(path[-1], expected_counts(path[-1], rows, weights, drop_barren), prior))
    return path


# --- Markov random fields ------------------------------------------------------------------------------------------


def make_field(cardinalities, scopes, tables=None, name="field") -> MarkovNetwork:
    """A field by its scopes; its variables are called v0, v1, …, their states s0, s1, …"""
    states = tuple(tuple(f"s{x}" for x in range(k)) for k in cardinalities)
    shapes = [tuple(cardinalities[v] for v in scope) for scope in scopes]
    found = [np.ones(s) for s in shapes] if tables is None else [np.array(t, float) for t in tables]
    names = tuple(f"v{i}" for i in range(len(cardinalities)))
    return MarkovNetwork(name, names, states, tuple(map(tuple, scopes)), tuple(found))


def random_field(
    rng: random.Random, n: int, max_states: int = 4, max_arity: int = 4, spread: float = 1.5, max_joint: int = 5000
) -> MarkovNetwork:
    """A field of n variables, its factors of random arity; scopes may lie in others or be equal, parts be apart."""
    cardinalities = [rng.choice([1, 2, 2, 2, 3, 4][: max_states + 2]) for _ in range(n)]
    while math.prod(cardinalities) > max_joint:
        largest = max(range(n), key=cardinalities.__getitem__)
        cardinalities[largest] -= 1
    apart = rng.randrange(n) if rng.random() < 0.3 else 0
    parts = [p for p in (range(apart), range(apart, n)) if p]
    scopes = []
    for _ in range(rng.randint(n - 1, n + 2) or 1):
        part = rng.choice(parts)
        scopes.append(rng.sample(part, min(len(part), rng.randint(1, max_arity))))
    if rng.random() < 0.4:
        scopes.append(rng.sample(twice := rng.choice(scopes), len(twice)))
    covered = {v for scope in scopes for v in scope}
    scopes += [[v] for v in range(n) if v not in covered]
    rng.shuffle(scopes)
    return with_potentials(make_field(cardinalities, scopes), [rng.uniform(-spread, spread) for _ in range(10**4)])


def with_potentials(network: MarkovNetwork, eta) -> MarkovNetwork:
    """The same field with log potentials taken from a flat sequence, as many as it needs."""
    tables, at = [], 0
    for shape in network.shapes:
        size = math.prod(shape)
        tables.append(np.exp(np.array(eta[at : at + size], float)).reshape(shape))
        at += size
    return MarkovNetwork(network.name, network.variables, network.states, network.scopes, tuple(tables))


def lattice_pairs(*sides: int) -> list[tuple[int, int]]:
    """Neighbours in a lattice of any dimension, numbered with the last coordinate running fastest."""
    places = list(itertools.product(*map(range, sides)))
    number = {place: v for v, place in enumerate(places)}
    pairs = []
    for place in places:
        for axis in range(len(sides)):
            other = tuple(x + (a == axis) for a, x in enumerate(place))
            if other in number:
                pairs.append((number[place], number[other]))
    return pairs


def chimera_pairs(rows: int, columns: int, shore: int) -> list[tuple[int, int]]:
    """A Chimera graph: cells of two shores, joined within a cell, one shore along columns, the other along rows."""

    def number(r, c, side, k):
        return ((r * columns + c) * 2 + side) * shore + k

    pairs = []
    for r, c in itertools.product(range(rows), range(columns)):
        for k in range(shore):
            pairs += [(number(r, c, 0, k), number(r, c, 1, j)) for j in range(shore)]
            if r + 1 < rows:
                pairs.append((number(r, c, 0, k), number(r + 1, c, 0, k)))
            if c + 1 < columns:
                pairs.append((number(r, c, 1, k), number(r, c + 1, 1, k)))
    return pairs


def uniform_field(scopes, seed: int = 0, states: int = 2, n: int | None = None, weight: float = 1.0) -> MarkovNetwork:
    """A field whose log potentials are uniform in [-weight, weight]."""
    rng = random.Random(seed)
    n = 1 + max(v for scope in scopes for v in scope) if n is None else n
    size = sum(states ** len(scope) for scope in scopes)
    return with_potentials(make_field([states] * n, scopes), [rng.uniform(-weight, weight) for _ in range(size)])


def marginal(network: MarkovNetwork, kept) -> np.ndarray:
    """A field's marginal on some variables, axes in their order: the others are summed out one by one."""
    tables = [(scope, table) for scope, table in zip(network.scopes, network.tables, strict=True)]
    left = set(range(len(network.variables))) - set(kept)

    def together(v):
        return {u for scope, _ in tables if v in scope for u in scope}

    while left:
        v = min(left, key=lambda u: (len(together(u)), u))
        left.remove(v)
        scope = tuple(sorted(together(v)))
        own = [(s, t) for s, t in tables if v in s]
        tables = [(s, t) for s, t in tables if v not in s]
        rest = tuple(u for u in scope if u != v)
        table = _product(own, scope).sum(axis=scope.index(v))
        tables.append((rest, table / table.max()))
    table = _product(tables, tuple(kept))
    whole = np.broadcast_to(table, [network.cardinalities[v] for v in kept])
    return whole / whole.sum()


def _product(tables, scope):
    out = np.ones([1] * len(scope))
    for own, table in tables:
        order = sorted(range(len(own)), key=lambda k: scope.index(own[k]))
        shape = [table.shape[own.index(v)] if v in own else 1 for v in scope]
        out = out * table.transpose(order).reshape(shape)
    return out


class Enumeration:
    """A field's joint states, one by one, and what its log potentials make of them.

    `entries[x, f]` is the entry of factor f that joint state x selects in the flat vector of parameters.
    """

    def __init__(self, network: MarkovNetwork) -> None:
        self.states = np.array(list(itertools.product(*(range(len(s)) for s in network.states))), np.int64)
        columns, base = [], 0
        for scope, shape in zip(network.scopes, network.shapes, strict=True):
            entry = np.zeros(len(self.states), np.int64)
            for v, k in zip(scope, shape, strict=True):
                entry = entry * k + self.states[:, v]
            columns.append(base + entry)
            base += math.prod(shape)
        self.entries = np.stack(columns, axis=1)
        self.n_parameters = base
        self.eta = log(np.concatenate([t.ravel() for t in network.tables]))

    def logs(self, eta):
        """Of the unnormalised probability of every joint state."""
        return eta[self.entries].sum(axis=1)

    def moments(self, shares):
        """Every factor entry's sum of joint states' shares."""
        out = np.zeros(self.n_parameters)
        for f in range(self.entries.shape[1]):
            np.add.at(out, self.entries[:, f], shares)
        return out

    def log_z(self, eta):
        return log_sum(self.logs(eta))

    def probabilities(self, eta):
        return np.exp(self.logs(eta) - self.log_z(eta))

    def marginals(self, eta):
        return self.moments(self.probabilities(eta))

    def agrees(self, row):
        """Which joint states agree with a row."""
        row = np.array(row)
        return ((self.states == row) | (row < 0)).all(axis=1)

    def data_term(self, eta, rows, weights=None):
        """Σ log Z(row), nats, and expected counts."""
        distinct: Counter = Counter()
        for row, w in zip(rows, weights or [1] * len(rows), strict=True):
            distinct[row] += w
        logs = self.logs(eta)
        parts, shares = [], np.zeros(len(logs))
        for row, w in distinct.items():
            if w:
                own = np.where(self.agrees(row), logs, -np.inf)
                value = log_sum(own)
                parts.append(w * value)
                if value > -np.inf:
                    shares += w * np.exp(own - value)
        return math.fsum(parts), self.moments(shares)

    def log_likelihood(self, eta, rows, weights=None):
        """Value, nats, and gradient in the log potentials."""
        n = math.fsum(weights or [1] * len(rows))
        value, expected = self.data_term(eta, rows, weights)
        return value - n * self.log_z(eta), expected - n * self.marginals(eta)

    def objective(self, eta, rows, weights=None, pseudo_count=0.0, l2=0.0):
        """The same with examples spread evenly over all joint states, and the penalty."""
        value, gradient = self.log_likelihood(eta, rows, weights)
        if pseudo_count:
            share = np.full(len(self.states), pseudo_count / len(self.states))
            value += float(share @ (self.logs(eta) - self.log_z(eta)))
            gradient = gradient + self.moments(share) - pseudo_count * self.marginals(eta)
        if l2:
            value, gradient = value - 0.5 * l2 * float(eta @ eta), gradient - l2 * eta
        return value, gradient


def log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


def log_sum(logs) -> float:
    """Log of a sum of exponentials."""
    top = max(logs)
    return top if top == -math.inf else float(top) + math.log(math.fsum(np.exp(logs - top).tolist()))


def sample_field(rng: random.Random, network: MarkovNetwork, n_rows: int) -> list[tuple[int, ...]]:
    """Complete rows of a field."""
    field = Enumeration(network)
    return [tuple(x) for x in rng.choices(field.states.tolist(), field.probabilities(field.eta).tolist(), k=n_rows)]


def incomplete_field(seed: int, n: int = 5, n_rows: int = 40, kind: str = "at random", **options):
    """A random field, and rows of it with something missing."""
    rng = random.Random(seed)
    network = random_field(rng, n, **options)
    return network, blank(rng, network, sample_field(rng, network, n_rows), kind)


def field_pieces(network: MarkovNetwork, rows, whole: bool = False):
    """The sub-networks of a field's data term; hidden variables have no column, see `as_partition`."""
    shown = [v for v in range(len(rows[0])) if any(row[v] >= 0 for row in rows)]
    columns = {network.variables[v]: k for k, v in enumerate(shown)}
    observed = {v for k, v in enumerate(network.variables) if all(row[k] >= 0 for row in rows)}
    return decompose(network, columns, observed, set(network.variables) - set(columns), whole).sub_networks


def local_terms(
    network: MarkovNetwork, rows, weights=None, whole: bool = False, by_row: bool = False, penalty=None
) -> LocalTerms:
    """The project's own terms of a field and rows."""
    pieces = field_pieces(network, rows, whole)
    # Cut after cut rows: what is counted apart adds up.
    cut = len(rows) // 3
    partitions = [
        project(part_of(rows, part, w), pack_scopes(pieces, 0 if by_row else MAX_ENTRIES), False, by_row)
        for part, w in ((rows[:cut], (weights or [])[:cut]), (rows[cut:], (weights or [])[cut:]))
        if part
    ]
    graph = network.graph
    numbers = {f: k for k, f in enumerate(network.learnable)}
    counts = merge(partitions).counts
    data = [make_data_term(prepare(s, c, 1 << 30), graph.bases, numbers) for s, c in zip(pieces, counts, strict=True)]
    model = make_model(graph, plan_model(graph, 1 << 30), 1 << 30)
    n = math.fsum(weights or [1] * len(rows))
    with_instances = [t for t in data if t.has_instances]
    return LocalTerms(model, with_instances, collect_complete(graph, data), n, penalty or Penalty())


def part_of(rows, part, weights) -> Partition:
    """Some of the rows, with a column for whatever any row observes."""
    shown = [v for v in range(len(rows[0])) if any(row[v] >= 0 for row in rows)]
    codes = np.array([[row[v] for row in part] for v in shown], "int16").reshape(len(shown), len(part))
    return Partition(codes, np.array(weights) if len(weights) else None)


# --- the project's own forms ---------------------------------------------------------------------------------------


def whole(network: Network, rows: list[tuple[int, ...]]) -> SubNetwork:
    """The network in one piece, every variable free, its columns in the network's order."""
    order = network.topological_order
    local = {v: k for k, v in enumerate(order)}
    hidden = [all(row[v] < 0 for row in rows) for v in order]
    column, columns = 0, {}
    for v in range(len(order)):
        if not hidden[local[v]]:
            columns[v] = column
            column += 1
    return make_sub_network(
        names=[network.variables[v] for v in order],
        cardinalities=[len(network.states[v]) for v in order],
        columns=[columns.get(v, -1) for v in order],
        may_miss=[any(row[v] < 0 for row in rows) for v in order],
        families=[[*(local[p] for p in network.parents[v]), local[v]] for v in order],
    )


def as_partition(rows: list[tuple[int, ...]], weights=None, dtype="int8") -> Partition:
    """Rows as codes, hidden columns left out."""
    width = len(rows[0])
    columns = [[row[v] for row in rows] for v in range(width)]
    kept = [c for c in columns if any(x >= 0 for x in c)]
    codes = np.array(kept, dtype).reshape(len(kept), len(rows))
    return Partition(codes, None if weights is None else np.array(weights))


def flat(sub_network: SubNetwork, network: Network, tables=None) -> np.ndarray:
    """Tables by variable as the flat vector of a sub-network."""
    number = {v: i for i, v in enumerate(network.variables)}
    tables = network.tables if tables is None else tables
    return np.concatenate([np.asarray(tables[number[name]], float).ravel() for name in sub_network.component])


def problem_of(network: Network, rows, weights=None, drop_barren=True, by_row=False) -> Problem:
    """The whole network as one learning problem."""
    s = whole(network, rows)
    scopes = pack_scopes([s], 0 if by_row else MAX_ENTRIES)
    projection: Projection = project(as_partition(rows, weights), scopes, drop_barren, by_row)
    return prepare(s, projection.counts[0], 1 << 30)


def instances(sub_network: SubNetwork, rows, weights=None, drop_barren: bool = True, by_row: bool = False) -> Counter:
    """Instances by definition: (hidden, families, boundary, values) -> examples; variables by number.

    Rows are over the sub-network's own variables, in its order.
    """
    families = [
        [int(v) for v in sub_network.members[a:b]]
        for a, b in itertools.pairwise(int(p) for p in sub_network.family_ptr)
    ]
    n = len(sub_network.names)
    children: dict[int, list[int]] = {v: [] for v in range(n)}
    for *parents, child in families:
        for p in parents:
            children[p].append(child)
    found: Counter = Counter()
    for row, w in zip(rows, weights or [1] * len(rows), strict=True):
        missing = {v for v in range(n) if row[v] < 0}
        if not w or not (missing or by_row):
            continue

        def seen_below(v, row=row):
            return any(row[c] >= 0 or seen_below(c) for c in children[v])

        kept = {v for v in missing if not drop_barren or seen_below(v)}
        relevant = [
            f for f, members in enumerate(families) if members[-1] not in missing - kept and kept & set(members)
        ]
        if by_row:
            observed = tuple(v for v in range(n) if v not in missing)
            key = (tuple(sorted(kept)), tuple(relevant), observed, tuple(row[v] for v in observed))
            found[key] += w
            continue
        left = set(kept)
        while left:
            component = {left.pop()}
            while True:
                tied = [f for f in relevant if component & set(families[f])]
                larger = component | {v for f in tied for v in families[f] if v in kept}
                if larger == component:
                    break
                component = larger
            left -= component
            boundary = tuple(sorted({v for f in tied for v in families[f]} - missing))
            found[(tuple(sorted(component)), tuple(tied), boundary, tuple(row[v] for v in boundary))] += w
    return found


def complete_counts(sub_network: SubNetwork, rows, weights=None) -> list:
    """Counts of fully observed families, in the layout of the parameters."""
    counts = [0] * sub_network.n_parameters
    for row, w in zip(rows, weights or [1] * len(rows), strict=True):
        for f, (a, b) in enumerate(itertools.pairwise(int(p) for p in sub_network.family_ptr)):
            members = [int(v) for v in sub_network.members[a:b]]
            if all(row[v] >= 0 for v in members):
                at = 0
                for v in members:
                    at = at * int(sub_network.cardinalities[v]) + row[v]
                counts[int(sub_network.bases[f]) + at] += w
    return counts


def listed(table: InstanceTable) -> list[tuple[tuple, int | float]]:
    """An instance table's rows in the form of `instances`, in the table's order."""

    def parts(ptr, items):
        return [tuple(items[a:b].tolist()) for a, b in itertools.pairwise(ptr.tolist())]

    signatures = list(
        zip(
            parts(table.hidden_ptr, table.hidden),
            parts(table.family_ptr, table.families),
            parts(table.boundary_ptr, table.boundary),
            strict=True,
        )
    )
    values = parts(table.value_ptr, table.values)
    return [
        ((*signatures[s], v), c)
        for s, v, c in zip(table.signature.tolist(), values, table.counts.tolist(), strict=True)
    ]
