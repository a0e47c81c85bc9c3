"""Learn discrete graphical models from large, incomplete Parquet datasets on Dask."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.learning import learn as learn
    from pipeline.networks import load_network as load_network
    from pipeline.planning import plan as plan
    from pipeline.scoring import score as score
    from pipeline.simulation import simulate as simulate
    from pipeline.structure import learn_structure as learn_structure
    from tasks.errors import BadInputError as BadInputError
    from tasks.errors import ImpossibleDataError as ImpossibleDataError
    from tasks.errors import LikelihoodFellError as LikelihoodFellError
    from tasks.errors import PgmError as PgmError
    from tasks.errors import TooLargeError as TooLargeError

# Resolved on first use: `dask --help` imports this package, and must not pay for numba, pyarrow or pgmpy.
_HOMES = {
    "learn": "pipeline.learning",
    "learn_structure": "pipeline.structure",
    "load_network": "pipeline.networks",
    "plan": "pipeline.planning",
    "score": "pipeline.scoring",
    "simulate": "pipeline.simulation",
    "BadInputError": "tasks.errors",
    "ImpossibleDataError": "tasks.errors",
    "LikelihoodFellError": "tasks.errors",
    "PgmError": "tasks.errors",
    "TooLargeError": "tasks.errors",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
