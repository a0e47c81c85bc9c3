"""The errors this project raises on purpose: one line each, fit to be shown to a user."""


class PgmError(Exception):
    """Base of every error that dask-pgm raises on purpose."""


class BadInputError(PgmError, ValueError):
    """The network, the data or a setting is not what it has to be; nothing was written."""


class ImpossibleDataError(BadInputError):
    """Some rows have probability zero under the parameters they were to be explained with."""


class TooLargeError(PgmError, MemoryError):
    """The job would need more memory than it may have; it was refused before that work began."""


class LikelihoodFellError(PgmError, ArithmeticError):
    """The objective fell from one iteration to the next: a bug, so the run stops."""
