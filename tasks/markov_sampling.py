"""Exact sampling from a Markov random field: its jointree's beliefs as the tables of a Bayesian network.

From the roots down, each cluster draws the variables that it sums out given its separator, one after another, so that
forward sampling draws rows from the field itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.errors import BadInputError
from tasks.jointree import Floats
from tasks.markov_terms import Model
from tasks.model_term import beliefs
from tasks.sampling import Sampler, make_sampler


def field_sampler(model: Model, theta: Floats) -> Sampler:
    """What forward sampling needs to draw from a Markov random field.

    Parameters
    ----------
    model : Model
        The field.
    theta : float64 array, shape (n_parameters,)
        Potentials, none above one.

    Raises
    ------
    BadInputError
        The zeros of the potentials exclude every state, or their products leave the range of a double.
    """
    tree, cardinalities = model.tree, model.graph.cardinalities
    tables = beliefs(tree, theta)
    if tables is None:
        raise BadInputError(
            "nothing can be drawn: the potentials exclude every state, or their products leave a double's range"
        )
    order: list[int] = []
    parents: list[tuple[int, ...]] = [()] * len(cardinalities)
    conditionals: list[NDArray[np.float64]] = [np.empty(0)] * len(cardinalities)
    for c in range(len(tree.members) - 1, -1, -1):
        members, first = tree.members[c], tree.n_separator[c]
        belief = tables[int(tree.table[c]) : int(tree.table[c + 1])].reshape([cardinalities[v] for v in members])
        for k in range(first, len(members)):
            joint = belief.sum(axis=tuple(range(k + 1, len(members))))
            total = joint.sum(axis=-1, keepdims=True)
            # What cannot happen is never drawn from; it needs a distribution all the same.
            uniform = np.full_like(joint, 1.0 / joint.shape[-1])
            conditionals[members[k]] = np.divide(joint, total, out=uniform, where=total > 0)
            parents[members[k]] = members[:k]
            order.append(members[k])
    return make_sampler(order, parents, conditionals)
