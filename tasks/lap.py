"""LAP: a Markov random field's parameters clique by clique, from local counts (Mizrahi et al. 2014, Algorithm 1).

For a maximal clique q let A_q be the union of the cliques that meet it. Everything that involves q lies inside A_q, so
summing the rest of the field out changes nothing about q: in the marginal on A_q, q's potentials normalised to zero at
the reference states are those of the whole field. So a field on A_q alone is fitted to the counts on A_q, its
*auxiliary* structure being what the marginal's may be, and q's normalised potentials are read off.

    q ──► A_q ──► auxiliary cliques on A_q ──► maximum likelihood from counts ──► φ_S for S ⊆ q ──► mean over the q ⊇ S
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.decomposable import maximal_scopes
from tasks.markov_graph import Graph
from tasks.normalised import from_normalised, slots, subsets, to_normalised

AUXILIARIES = ("exact", "dense", "pairwise")
Scope = tuple[int, ...]


@dataclass(frozen=True)
class CliqueSystem:
    """The maximal cliques of a Markov random field: its factors' maximal scopes.

    Attributes
    ----------
    graph : Graph
        Of all factors.
    """

    graph: Graph

    @cached_property
    def factors(self) -> tuple[int, ...]:
        """The factor that holds each clique."""
        return tuple(maximal_scopes(self.graph.scopes))

    @cached_property
    def cliques(self) -> tuple[Scope, ...]:
        """Each clique's variables, in the order of its factor's table."""
        return tuple(self.graph.scopes[f] for f in self.factors)

    @cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """The cliques that each variable is in."""
        out: list[list[int]] = [[] for _ in self.graph.names]
        for c, clique in enumerate(self.cliques):
            for v in clique:
                out[v].append(c)
        return tuple(map(tuple, out))

    def meeting(self, variables: Iterable[int]) -> set[int]:
        """Cliques that share a variable with these."""
        return {c for v in variables for c in self.holders[v]}

    def neighbourhood(self, q: int) -> Scope:
        """A_q, ascending."""
        return tuple(sorted({v for c in self.meeting(self.cliques[q]) for v in self.cliques[c]}))

    def neighbours(self, v: int) -> set[int]:
        """Variables that share a clique with one."""
        return {u for c in self.holders[v] for u in self.cliques[c]} - {v}


@dataclass(frozen=True)
class Auxiliary:
    """An auxiliary field.

    Attributes
    ----------
    variables : tuple of int
        A_q, ascending.
    scopes : tuple of tuple of int
        Its cliques, maximal ones only.
    cliques : tuple of int
        The cliques q that are read off it.
    """

    variables: Scope
    scopes: tuple[Scope, ...]
    cliques: tuple[int, ...]


def outside_neighbours(system: CliqueSystem, inside: Scope) -> list[set[int]]:
    """For every connected part of the graph without `inside`, which of `inside` it touches.

    The parts are grown from the border, all at once, and only until it is clear which belong together: in a large
    lattice that is a ring around the neighbourhood, not the lattice.
    """
    members = set(inside)
    touches: dict[int, set[int]] = {}  # by the first variable met of a part
    part_of: dict[int, int] = {}
    frontier: dict[int, list[int]] = {}
    for v in inside:
        for u in system.neighbours(v) - members:
            if u not in part_of:
                part_of[u] = u
                touches[u] = set()
                frontier[u] = [u]
            touches[u].add(v)
    leader = {u: u for u in touches}

    def find(u: int) -> int:
        while leader[u] != u:
            u = leader[u]
        return u

    growing = list(touches)
    while len(growing) > 1:
        alive = []
        for g in growing:
            if find(g) != g:
                continue
            fresh = []
            for v in frontier[g]:
                for u in system.neighbours(v) - members:
                    if u not in part_of:
                        part_of[u] = g
                        fresh.append(u)
                    elif (other := find(part_of[u])) != find(g):
                        here = find(g)
                        leader[other] = here
                        touches[here] |= touches.pop(other)
                        fresh.extend(frontier.pop(other))
            frontier[g] = fresh
            alive.append(g)
        # A part with nothing left to grow into is whole.
        growing = [g for g in alive if find(g) == g and frontier[g]]
        if len(touches) == 1:
            break
    return list(touches.values())


def make_auxiliary(system: CliqueSystem, q: int, kind: str) -> Auxiliary:
    """The auxiliary field of a clique.

    Parameters
    ----------
    system : CliqueSystem
        The field's cliques.
    q : int
        Which of them.
    kind : {"exact", "dense", "pairwise"}
        Exact: the cliques inside A_q, and for each connected part of the graph outside a clique on what it touches:
        the structure of the marginal. Dense: the cliques inside that meet q, and one on all of A_q without q: contains
        the marginal's. Pairwise: the cliques inside, and all pairs of A_q without q: does not, in general.
    """
    variables = system.neighbourhood(q)
    inside = set(variables)
    own = set(system.cliques[q])
    rest = tuple(v for v in variables if v not in own)
    within = [
        tuple(sorted(system.cliques[c])) for c in system.meeting(variables) if inside.issuperset(system.cliques[c])
    ]
    if kind == "exact":
        scopes = within + [tuple(sorted(t)) for t in outside_neighbours(system, variables)]
    elif kind == "dense":
        scopes = [s for s in within if own.intersection(s)] + ([rest] if rest else [])
    else:
        scopes = within + [(a, b) for i, a in enumerate(rest) for b in rest[i + 1 :]] + [(v,) for v in rest]
    scopes = sorted(set(scopes))
    return Auxiliary(variables, tuple(scopes[k] for k in maximal_scopes(scopes)), (q,))


def make_auxiliaries(system: CliqueSystem, cliques: Sequence[int], kind: str) -> tuple[Auxiliary, ...]:
    """The auxiliary fields of some cliques; equal ones are one, read off for all of their cliques."""
    found: dict[tuple[Scope, tuple[Scope, ...]], list[int]] = {}
    by_neighbourhood: dict[Scope, tuple[Scope, ...]] = {}
    for q in cliques:
        variables = system.neighbourhood(q)
        if kind == "exact" and variables in by_neighbourhood:
            found[variables, by_neighbourhood[variables]].append(q)
            continue
        auxiliary = make_auxiliary(system, q, kind)
        by_neighbourhood[variables] = auxiliary.scopes
        found.setdefault((variables, auxiliary.scopes), []).append(q)
    return tuple(Auxiliary(variables, scopes, tuple(own)) for (variables, scopes), own in found.items())


def read_off(clique: Scope, scopes: Sequence[Scope], tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Normalised potentials of a clique from an auxiliary field's log potentials.

    Parameters
    ----------
    clique : tuple of int
        q, in the order of its factor's axes.
    scopes : sequence of tuple of int
        The auxiliary cliques.
    tables : sequence of float64 arrays
        Their log potentials.

    Returns
    -------
    float64 array, shape of q's table
        As `to_normalised` lays them out; the entry at the reference is zero.

    Notes
    -----
    Only cliques that meet q have a part in φ_S with S ⊆ q: what is between the others only never enters.
    """
    position = {v: k for k, v in enumerate(clique)}
    cardinalities = {v: k for scope, t in zip(scopes, tables, strict=True) for v, k in zip(scope, t.shape, strict=True)}
    out = np.zeros([cardinalities[v] for v in clique])
    for scope, table in zip(scopes, tables, strict=True):
        shared = [a for a, v in enumerate(scope) if v in position]
        if not shared:
            continue
        # The rest of its variables stays at the reference.
        values = to_normalised(table[tuple(slice(None) if a in shared else 0 for a in range(len(scope)))])
        axes = [position[scope[a]] for a in shared]
        for chosen in subsets(len(shared)):
            part = values[slots(chosen, len(shared))]
            order = sorted(range(len(chosen)), key=lambda k: axes[chosen[k]])
            with np.errstate(invalid="ignore"):
                out[slots([axes[k] for k in chosen], len(clique))] += part.transpose(order)
    return out


def merge_cliques(system: CliqueSystem, read: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Log potentials of all factors from the cliques' normalised potentials.

    Parameters
    ----------
    system : CliqueSystem
        The field's cliques.
    read : sequence of float64 arrays
        Of each clique, as `read_off` gives them.

    Returns
    -------
    list of float64 arrays
        A table for every factor of the graph: a set's potential is the mean over the cliques that contain it, each of
        which has seen its whole neighbourhood, and lies in the first of them; factors that hold no clique are zero.
    """
    total: dict[Scope, NDArray[np.float64]] = {}
    count: dict[Scope, int] = {}
    first: dict[Scope, int] = {}
    plans: dict[int, list[tuple[int, ...]]] = {}
    for c, (clique, values) in enumerate(zip(system.cliques, read, strict=True)):
        for chosen in plans.setdefault(len(clique), subsets(len(clique))):
            order = sorted(chosen, key=lambda k: clique[k])
            key = tuple(clique[k] for k in order)
            part = values[slots(chosen, len(clique))].transpose([chosen.index(k) for k in order])
            if key in total:
                total[key] = total[key] + part
                count[key] += 1
            else:
                total[key], count[key], first[key] = part, 1, c
    out = [np.zeros([system.graph.cardinalities[v] for v in s]) for s in system.graph.scopes]
    for c, (f, clique) in enumerate(zip(system.factors, system.cliques, strict=True)):
        values = np.zeros(out[f].shape)
        for chosen in plans[len(clique)]:
            order = sorted(chosen, key=lambda k: clique[k])
            key = tuple(clique[k] for k in order)
            if first[key] == c:
                mean = total[key] / count[key]
                values[slots(chosen, len(clique))] = mean.transpose([order.index(k) for k in chosen])
        out[f] = from_normalised(values)
    return out
