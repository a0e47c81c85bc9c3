"""Where a job runs: Dask clusters, and what their workers need before work begins."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.connection import connect as connect
    from cluster.warmup import prepare as prepare

# Resolved on first use: importing distributed takes longer than most commands that don't need it.
_HOMES = {"connect": "cluster.connection", "prepare": "cluster.warmup"}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
