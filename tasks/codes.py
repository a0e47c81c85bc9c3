"""State codes: how a value is written as a small integer."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

# The one sentinel for a missing value. Every other code is a position in the variable's states.
MISSING = -1


def code_dtype(cardinality: int) -> DTypeLike:
    """The smallest signed integer type that holds `cardinality` codes and the negative sentinels."""
    if cardinality <= np.iinfo(np.int8).max:
        return np.int8
    return np.int16 if cardinality <= np.iinfo(np.int16).max else np.int32
