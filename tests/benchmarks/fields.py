"""Markov random fields for the benchmarks: chains, trees, grids, moralised examples, UAI files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline import load_network
from pipeline.markov import MarkovNetwork, moralise


def field_named(name: str, seed: int = 0, weight: float = 1.0) -> MarkovNetwork:
    """A field by name.

    Parameters
    ----------
    name : str
        `chain-50`, `tree-63` (complete, binary), `grid-9` (9x9), an example network (moralised), or a UAI file.
    seed : int
        Of the log potentials of chains, trees and grids.
    weight : float
        These are uniform in [-weight, weight].
    """
    kind, _, size = name.partition("-")
    if Path(name).suffix or kind not in ("chain", "tree", "grid"):
        network = load_network(name)
        return network if isinstance(network, MarkovNetwork) else moralise(network)
    k = int(size)
    if kind == "grid":
        n = k * k
        pairs = [(v, v + 1) for v in range(n) if (v + 1) % k] + [(v, v + k) for v in range(n - k)]
    else:
        n = k
        pairs = [(v - 1 if kind == "chain" else (v - 1) // 2, v) for v in range(1, n)]
    rng = np.random.default_rng(seed)
    tables = tuple(np.exp(rng.uniform(-weight, weight, (2, 2))) for _ in pairs)
    return MarkovNetwork(name, tuple(f"x{v}" for v in range(n)), ((0, 1),) * n, tuple(pairs), tables)
