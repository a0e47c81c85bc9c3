"""Compile the kernels once per worker, before anything is timed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import WorkerPlugin

from tasks.errors import BadInputError

if TYPE_CHECKING:
    from distributed import Client


class WarmUp(WorkerPlugin):
    """Compile the kernels, or load them from numba's cache on disk, when a worker starts.

    A worker takes no task before its plug-ins are set up, so workers that join later are warm too.
    """

    name = "dask-pgm-warm-up"
    idempotent = True

    async def setup(self, worker: Any) -> None:
        """Warm up in a thread: compiling takes seconds, during which the worker must go on answering."""
        from tasks.warmup import warm_up

        await asyncio.to_thread(warm_up)


def prepare(client: Client) -> None:
    """Make every worker of a client compile the kernels, now or when it joins, and wait for those there are.

    Parameters
    ----------
    client : distributed.Client
        Doing it again for the same cluster costs one message.

    Raises
    ------
    BadInputError
        The workers don't have this package.
    """
    try:
        client.register_plugin(WarmUp())
    except Exception as cause:
        # A plug-in that failed stays registered, and the next call would take it for done.
        client.unregister_worker_plugin(WarmUp.name)
        if isinstance(cause, ImportError):
            raise BadInputError(
                f"the workers of {client.scheduler.address} can't import what they need ({cause}): "
                "install dask-pgm there, the same version as here"
            ) from cause
        raise
