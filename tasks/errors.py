"""The errors this project raises on purpose: one line each, fit to be shown to a user."""


class PgmError(Exception):
    """Base of every error that dask-pgm raises on purpose."""


class BadInputError(PgmError, ValueError):
    """The network, the data or a setting is not what it has to be; nothing was written."""


class ImpossibleDataError(BadInputError):
    """Some rows have probability zero under the parameters they were to be explained with.

    Attributes
    ----------
    hidden : tuple of str
        Variables missing in those rows.
    codes : tuple of (str, int)
        Observed variables and the numbers of their states, which the driver words by name.
    """

    def __init__(self, message: str, hidden: tuple[str, ...] = (), codes: tuple[tuple[str, int], ...] = ()) -> None:
        super().__init__(message)
        self.hidden = hidden
        self.codes = codes


# MemoryError first: unpickled in the other order it is refused, and arrives from a worker as a bare Exception.
class TooLargeError(MemoryError, PgmError):
    """The job would need more memory than it may have; it was refused before that work began."""


class LikelihoodFellError(PgmError, ArithmeticError):
    """The objective fell from one iteration to the next: a bug, so the run stops."""
