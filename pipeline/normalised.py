"""The parameters of a Markov random field that are unique: log potentials normalised to zero at reference states.

For every set S of variables inside some factor and every state x_S without a reference state,

    φ_S(x_S) = Σ over T ⊆ S of (−1)^|S − T| log p(x_T, all others at their reference)

so that log p(x) = Σ_S φ_S(x_S) − log Z with φ = 0 wherever a variable is at its reference: the first of its states.
Equal distributions have equal normalised parameters, whatever their factors' raw potentials are (Mizrahi et al. 2014,
Definition 1).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.markov import MarkovNetwork
from tasks.normalised import slots, subsets, to_normalised

Normalised = dict[tuple[int, ...], NDArray[np.float64]]


def normalise(network: MarkovNetwork) -> tuple[Normalised, float]:
    """Normalised log potentials of a Markov random field with tables.

    Returns
    -------
    potentials : dict of tuple of int to float64 array
        By set of variables, ascending: an array over their states but the first of each, shape (cardinality − 1, ...).
        Infinite or NaN where zero potentials are involved: the latter where they leave a value without meaning.
    constant : float
        What they leave out: log p(x) = Σ φ(x) + constant − log Z. It is Σ log θ at the reference, nats.
    """
    potentials: Normalised = {}
    constants = []
    for scope, table in zip(network.scopes, network.tables, strict=True):
        assert table is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            values = to_normalised(np.log(table))
            constants.append(float(values[(0,) * values.ndim]))
            for inside in subsets(len(scope)):
                order = sorted(range(len(inside)), key=lambda k: scope[inside[k]])
                key = tuple(scope[inside[k]] for k in order)
                part = values[slots(inside, len(scope))].transpose(order)
                potentials[key] = potentials[key] + part if key in potentials else part.copy()
    ordered = sorted(potentials, key=lambda key: (len(key), key))
    return {key: potentials[key] for key in ordered if potentials[key].size}, math.fsum(constants)
