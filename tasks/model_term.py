"""The model term of a Markov random field: log Z and every factor's marginals by one jointree, up and down."""

from __future__ import annotations

import numpy as np

from tasks.jointree import NONE, WHOLE, Floats, Jointree
from tasks.kernel import kernel

# Products below this may have lost digits. What was lost grows by every scaling on its way to the root, and must not be
# more than this share of Z (in logarithms).
LOSSY, LOG_LOSSY = 1e-290, -667.0
LOG_SHARE = -46.0


@kernel
def upward(theta, tables, messages, scales, products, arrays):
    """Fill the clusters and send every message to the roots: log Z, and whether the result can be trusted.

    A root's table ends normalised; every other's is its own factors times its children's messages.
    """
    size, runs, table, message, parent, down, own, product, factor_ptr, place, maps = arrays
    n_clusters = size.shape[0]
    # The second half of the scales: the most that each cluster's message can have lost, in logarithms.
    lost = scales[n_clusters : 2 * n_clusters]
    for c in range(n_clusters):
        lossy = False
        first, last = factor_ptr[c], factor_ptr[c + 1]
        begin = product[c]
        for g in range(product[c + 1] - begin):
            x = 1.0
            for j in range(first, last):
                x *= theta[maps[place[j] + g]]
            if x < LOSSY:
                possible = True
                for j in range(first, last):
                    possible = possible and theta[maps[place[j] + g]] > 0.0
                lossy = lossy or possible
            products[begin + g] = x
        lost[c] = LOG_LOSSY if lossy else -np.inf
        here = tables[table[c] : table[c + 1]]
        if own[c] == NONE:
            for t in range(size[c]):
                here[t] = 1.0
        elif own[c] == WHOLE:
            for t in range(size[c]):
                here[t] = products[begin + t]
        else:
            look = maps[own[c] : own[c] + size[c]]
            for t in range(size[c]):
                here[t] = products[begin + look[t]]
    log_z = 0.0
    for c in range(n_clusters):
        here = tables[table[c] : table[c + 1]]
        p = parent[c]
        if p < 0:
            total = 0.0
            for t in range(size[c]):
                total += here[t]
            if not total >= LOSSY:
                return -np.inf, False
            if lost[c] + np.log(float(size[c])) - np.log(total) > LOG_SHARE:
                return -np.inf, False
            log_z += np.log(total)
            divide = 1.0 / total
            for t in range(size[c]):
                here[t] *= divide
            continue
        sent = messages[message[c] : message[c + 1]]
        n = runs[c]
        top = 0.0
        for e in range(sent.shape[0]):
            total = 0.0
            for t in range(e * n, e * n + n):
                total += here[t]
            sent[e] = total
            top = max(top, total)
        if not top >= LOSSY:
            return -np.inf, False
        # Scaled to a maximum of one, so that no product of many can overflow.
        scales[c] = top
        log_z += np.log(top)
        divide = 1.0 / top
        for e in range(sent.shape[0]):
            sent[e] *= divide
        lost[p] = max(lost[p], lost[c] + np.log(float(n)) - np.log(top))
        above = tables[table[p] : table[p + 1]]
        look = maps[down[c] : down[c] + size[p]]
        lossy = False
        for t in range(size[p]):
            x, m = above[t], sent[look[t]]
            y = x * m
            if y < LOSSY and x > 0.0 and m > 0.0:
                lossy = True
            above[t] = y
        if lossy:
            lost[p] = max(lost[p], LOG_LOSSY)
    return log_z, True


@kernel
def receive(c, tables, messages, scales, arrays):
    """Make cluster c's table its belief, from its parent's: the separator's belief is left as its message."""
    size, runs, table, message, parent, down, maps = (
        arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], arrays[5], arrays[10]
    )  # fmt: skip
    p = parent[c]
    width = message[c + 1] - message[c]
    sent = messages[message[c] : message[c + 1]]
    # The second half of the messages is room for separators' beliefs.
    half = messages.shape[0] // 2
    belief = messages[half : half + width]
    above = tables[table[p] : table[p + 1]]
    look = maps[down[c] : down[c] + size[p]]
    for e in range(width):
        belief[e] = 0.0
    for t in range(size[p]):
        belief[look[t]] += above[t]
    here = tables[table[c] : table[c + 1]]
    n = runs[c]
    for e in range(width):
        ratio = belief[e] / (sent[e] * scales[c]) if sent[e] > 0.0 else 0.0
        for t in range(e * n, e * n + n):
            here[t] *= ratio
        sent[e] = belief[e]


@kernel
def own_marginal(c, tables, products, arrays):
    """The belief of cluster c over the variables of its factors, in the second half of the products."""
    size, table, own, product, maps = arrays[0], arrays[2], arrays[6], arrays[7], arrays[10]
    half = products.shape[0] // 2
    belief = products[half + product[c] : half + product[c + 1]]
    here = tables[table[c] : table[c + 1]]
    if own[c] == WHOLE:
        for t in range(size[c]):
            belief[t] = here[t]
        return belief
    for g in range(belief.shape[0]):
        belief[g] = 0.0
    if own[c] >= 0:
        look = maps[own[c] : own[c] + size[c]]
        for t in range(size[c]):
            belief[look[t]] += here[t]
    return belief


@kernel
def _evaluate(theta, marginals, tables, messages, scales, products, arrays):
    log_z, trusted = upward(theta, tables, messages, scales, products, arrays)
    if not trusted:
        return log_z, False
    parent, factor_ptr, place, maps = arrays[4], arrays[8], arrays[9], arrays[10]
    for x in range(marginals.shape[0]):
        marginals[x] = 0.0
    for c in range(parent.shape[0] - 1, -1, -1):
        if parent[c] >= 0:
            receive(c, tables, messages, scales, arrays)
        belief = own_marginal(c, tables, products, arrays)
        for j in range(factor_ptr[c], factor_ptr[c + 1]):
            look = maps[place[j] : place[j] + belief.shape[0]]
            for g in range(belief.shape[0]):
                marginals[look[g]] += belief[g]
    return log_z, True


def model_term(tree: Jointree, theta: Floats) -> tuple[float, Floats, bool]:
    """Log partition function and factor marginals.

    Parameters
    ----------
    tree : Jointree
        Of all factors.
    theta : float64 array, shape (n_parameters,)
        Potentials, none above one: scale each factor to a maximum of one first, and add the logarithms of the scales.

    Returns
    -------
    log_z : float, nats
    marginals : float64 array, shape (n_parameters,)
        Pr(x_f) of every factor's every entry: the gradient of log Z in the log potentials.
    trusted : bool
        False where a product left the range of a double or Z is zero: then the other two mean nothing, and
        `tasks.markov` evaluates in logarithms.
    """
    marginals = np.empty(int(tree.bases[-1]))
    log_z, trusted = _evaluate(theta, marginals, *tree.scratch(), tree.arrays)
    return float(log_z), marginals, bool(trusted)


def beliefs(tree: Jointree, theta: Floats) -> Floats | None:
    """Every cluster's joint distribution, one table after another as `Jointree.table` places them.

    None where a product left the range of a double, or Z is zero.
    """
    scratch = tree.scratch()
    _, trusted = _evaluate(theta, np.empty(int(tree.bases[-1])), *scratch, tree.arrays)
    return scratch[0] if trusted else None
