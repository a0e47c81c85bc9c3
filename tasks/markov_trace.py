"""How a run over a Markov random field's objective went."""

from __future__ import annotations

from tasks.markov_terms import Point


class Trace:
    """The points of a run: the last of them, and what became of the objective.

    Parameters
    ----------
    first : Point
        The start.

    Attributes
    ----------
    last : Point
        Where the run is.
    log_likelihood, objective : list of float
        At the start and after each iteration, nats.
    evaluations : int
        Evaluations of both terms.
    converged : bool
        The moments agreed within the tolerance.
    error : float
        Largest difference between a moment of the data and of the model, when it was last looked at.
    """

    def __init__(self, first: Point) -> None:
        self.last = first
        self.log_likelihood = [first.log_likelihood]
        self.objective = [first.objective]
        self.evaluations = 1
        self.converged = False
        self.error = float("inf")

    @property
    def iterations(self) -> int:
        """Updates made."""
        return len(self.objective) - 1

    def add(self, point: Point, evaluations: int = 1) -> None:
        """Take a point as the end of an iteration."""
        self.last = point
        self.log_likelihood.append(point.log_likelihood)
        self.objective.append(point.objective)
        self.evaluations += evaluations

    def settle(self, error: float, tolerance: float) -> bool:
        """Whether this is the end: every moment is within the tolerance."""
        self.error = error
        self.converged = error <= tolerance
        return self.converged
