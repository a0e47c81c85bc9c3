"""What solving gives `learn`, whatever the kind of network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.markov import AnyNetwork
from pipeline.result import SubNetworkResult


@dataclass(frozen=True)
class Outcome:
    """A learned network with the records of its learning.

    Attributes
    ----------
    learned : Network or MarkovNetwork
        With all tables.
    expected : tuple of (float64 array, or None)
        Expected counts in the tables' shapes.
    log_likelihood : float
        Nats, summed over rows.
    records : tuple of SubNetworkResult
        By sub-network.
    unlearnable : mapping of str to int
        How many parameters of what have no evidence.
    report : mapping
        What this kind of network adds to the report.
    log_z : float
        Log partition function of the learned tables, nats; of a Bayesian network zero.
    """

    learned: AnyNetwork
    expected: tuple[NDArray[np.float64] | None, ...]
    log_likelihood: float
    records: tuple[SubNetworkResult, ...]
    unlearnable: Mapping[str, int]
    report: Mapping[str, Any]
    log_z: float = 0.0
