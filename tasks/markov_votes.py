"""What each instance says of each factor it does not fully observe: EDML's votes, sparse.

An instance's vote on factor a is its posterior over a's entries that agree with it, Pr(x_a | d_i): the constants
C_x^i of equation 5.8, times θ*_x / Z(d_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.errors import ImpossibleDataError
from tasks.inference import Evidence, sweep
from tasks.jointree import Floats, Longs
from tasks.markov_terms import DataTerm

# Entries of a dense block of posteriors that are made at a time before the zeros are dropped.
MAX_ENTRIES = 1 << 22


@dataclass(frozen=True)
class SparseVotes:
    """Votes as triples, those of one instance on one factor next to each other.

    Attributes
    ----------
    vote : int64 array, shape (n_entries,)
        Which vote an entry belongs to.
    parameter : int64 array, shape (n_entries,)
        The potential it is about.
    weight : float64 array, shape (n_entries,)
        Examples times posterior.
    counts : float64 array, shape (n_votes,)
        Examples each vote stands for.
    n_parameters : int
        Of the sub-network.
    """

    vote: Longs
    parameter: Longs
    weight: Floats
    counts: Floats
    n_parameters: int

    @property
    def open(self) -> NDArray[np.bool_]:
        """Whether any instance leaves a parameter open, shape (n_parameters,)."""
        out = np.zeros(self.n_parameters, np.bool_)
        out[self.parameter] = True
        return out

    def respond(self, ratio: Floats) -> Floats:
        """Expected counts were potentials changed by these ratios, one factor at a time; shape (n_parameters,)."""
        each = self.weight * ratio[self.parameter]
        total = np.bincount(self.vote, each, len(self.counts))
        share = np.divide(self.counts, total, out=np.zeros_like(total), where=total > 0)
        return np.bincount(self.parameter, each * share[self.vote], self.n_parameters).astype(np.float64)


def collect_votes(term: DataTerm, theta: Floats) -> SparseVotes:
    """The votes of a sub-network's instances, of which it has some, under given potentials, none above one."""
    n = term.sub_network.n_parameters
    assert term.evidence is not None
    votes, parameters, weights, counts = [], [], [], []
    n_votes = 0
    step = max(1, MAX_ENTRIES // max(n, 1))
    for begin in range(0, len(term.evidence.counts), step):
        dense = _posteriors(term, theta, begin, min(begin + step, len(term.evidence.counts)))
        row, column = np.nonzero(dense)
        factor = np.searchsorted(term.sub_network.bases, column, side="right")
        fresh = np.concatenate([[True], (row[1:] != row[:-1]) | (factor[1:] != factor[:-1])])
        number = np.cumsum(fresh) - 1
        votes.append(number + n_votes)
        parameters.append(column)
        weights.append(dense[row, column])
        counts.append(np.bincount(number, dense[row, column]))
        n_votes += int(number[-1]) + 1 if len(number) else 0
    return SparseVotes(
        np.concatenate(votes), np.concatenate(parameters), np.concatenate(weights), np.concatenate(counts), n
    )


def _posteriors(term: DataTerm, theta: Floats, begin: int, end: int) -> Floats:
    """Examples times posterior, a row an instance, shape (end - begin, n_parameters)."""
    e = term.evidence
    assert e is not None
    lo, hi = int(e.offset_ptr[begin]), int(e.offset_ptr[end])
    some = Evidence(
        e.signature[begin:end], e.counts[begin:end], e.offset_ptr[begin : end + 1] - lo, e.offsets[lo:hi], e.programs
    )
    out = np.empty((end - begin, len(theta)))
    scratch, belief = np.empty(some.scratch_size), np.empty(some.scratch_size)
    # Blocks of one instance: each has a row of expected counts to itself.
    _, impossible = sweep(theta, out, 1, scratch, belief, some.arrays)
    if impossible >= 0:
        assert term.counts.instances is not None
        hidden, values = term.counts.instances.describe(begin + impossible, term.sub_network)
        raise ImpossibleDataError("rows of probability zero", hidden, tuple(values.items()))
    return out
