"""One way to reach any cluster: `connect(spec)` gives a client whose workers are ready."""

from __future__ import annotations

import asyncio
import logging
import operator
import os
import re
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from cluster.warmup import prepare
from tasks.errors import BadInputError

if TYPE_CHECKING:
    from distributed import Client

DASHBOARD_PORT = 8787

# Seconds between two attempts to reach a scheduler.
RETRY = 0.2


def connect(
    spec: str = "local", workers: int | None = None, threads_per_worker: int = 1, *, timeout: float = 10.0
) -> Client:
    """Return a client of a local cluster, or of a running scheduler, with kernels compiled on its workers.

    Parameters
    ----------
    spec : str
        "local" starts worker processes here, reachable from this machine only; an address such as
        "tcp://host:8786" or "tls://host:8786" connects to a scheduler that runs already.
    workers : int, optional
        How many processes "local" starts; one for each CPU unless told.
    threads_per_worker : int
        Threads of each of those processes.
    timeout : float
        Seconds to wait for a running scheduler, and then for its first worker.

    Returns
    -------
    distributed.Client
        A context manager. Closing it also ends the processes that "local" started. `client.dashboard_link` is the
        dashboard's address.

    Raises
    ------
    BadInputError
        `spec` is no address, the scheduler can't be reached or has no workers, or `workers` doesn't go with it.
    """
    if spec == "local":
        workers = _count("workers", os.cpu_count() or 1 if workers is None else workers)
        client = _start_local(workers, _count("threads_per_worker", threads_per_worker))
    else:
        if workers is not None:
            raise BadInputError(f"workers: the scheduler at {spec} has its own; only a local cluster takes a number")
        client = _reach(spec, timeout)
    try:
        prepare(client)
    except BaseException:
        with _quiet():
            client.close()
        raise
    return client


def _count(name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool) and operator.index(value) >= 1:
            return operator.index(value)
    except TypeError:
        pass
    raise BadInputError(f"{name}: expected a whole number of at least 1, found {value!r}")


def _start_local(workers: int, threads_per_worker: int) -> Client:
    import dask
    from distributed import Client

    client = None
    try:
        # A client that makes its cluster also closes it. It makes one only where no scheduler is configured.
        with dask.config.set({"scheduler-address": None}), warnings.catch_warnings(), _deaf_to_interrupts():
            warnings.filterwarnings("ignore", message="Port .* is already in use")
            client = Client(
                n_workers=workers,
                threads_per_worker=threads_per_worker,
                processes=True,
                host="127.0.0.1",
                dashboard_address=f"127.0.0.1:{_dashboard_port()}",
                silence_logs=logging.CRITICAL,
            )
    except BaseException:
        if client is not None:
            client.close()
        raise
    return client


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C doesn't reach, and put an interruption off until they are all there.

    A terminal sends Ctrl-C to every process of a job. Workers would each print a traceback, where this process closes
    them in order; and a cluster that is half started can't be closed.
    """
    # Threads and processes inherit the signal mask of the thread that makes them: the event loop's thread is made
    # below, and makes every worker, restarted ones too. multiprocessing's own helper process must be there already,
    # because starting it clears the mask.
    resource_tracker.ensure_running()
    is_main = threading.current_thread() is threading.main_thread()
    interrupted = False

    def remember(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    handler = signal.signal(signal.SIGINT, remember) if is_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if interrupted:
        raise KeyboardInterrupt


def _dashboard_port() -> int:
    """Dask's usual port, or 0 (any free one) where that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DASHBOARD_PORT))
        except OSError:
            return 0
    return DASHBOARD_PORT


def _reach(spec: str, timeout: float) -> Client:
    from distributed import Client

    address = spec if "://" in spec else f"tcp://{spec}"
    if not re.fullmatch(r"(tcp|tls)://([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}", address):
        raise BadInputError(f"{spec!r} is no scheduler address: expected local, tcp://host:port or tls://host:port")
    with _quiet():
        try:
            # In a thread of its own: a notebook already runs an event loop in this one.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, _knock(address, timeout)).result()
            client = Client(address, timeout=timeout)
        except Exception as cause:
            # Whatever goes wrong here (refused, no such host, not a scheduler, a certificate) is about the address.
            raise BadInputError(
                f"cannot reach the scheduler at {spec}: {_reason(cause, timeout)}; "
                "start one with `dask scheduler`, or leave --scheduler out"
            ) from cause
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as cause:
        client.close()
        raise BadInputError(
            f"the scheduler at {spec} has no workers; start some with `dask worker {address}`"
        ) from cause
    except BaseException:
        client.close()
        raise
    return client


async def _knock(address: str, timeout: float) -> None:
    """See whether a Dask server answers within a time, and raise what is in the way if none does.

    Dask's own attempts end in "timed out" whatever happened, and `Client` waits without end for a server that accepts
    and then says nothing.
    """
    from distributed.comm import connect as connect_comm
    from distributed.security import Security

    host, _, port = address.partition("://")[2].rpartition(":")
    async with asyncio.timeout(timeout):
        await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port))
    # A scheduler started a moment before may not listen yet: refusals are tried again until the time is up.
    deadline = time.monotonic() + timeout
    while True:
        try:
            async with asyncio.timeout(max(RETRY, deadline - time.monotonic())):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            break
        except ConnectionRefusedError:
            if time.monotonic() + RETRY > deadline:
                raise
            await asyncio.sleep(RETRY)
    async with asyncio.timeout(timeout):
        comm = await connect_comm(address, timeout=timeout, **Security().get_connection_args("client"))
    comm.abort()


def _reason(error: BaseException, timeout: float) -> str:
    """What happened, in words: of the innermost cause, as the outer ones only say that connecting failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TimeoutError | asyncio.CancelledError):
        return f"no answer from a Dask scheduler within {timeout:g} s"
    if isinstance(error, socket.gaierror):
        text = error.strerror or str(error)
    elif isinstance(error, OSError) and error.errno is not None:
        text = os.strerror(error.errno)
    else:
        text = str(error)
    return " ".join(text.split()).rstrip(".") or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own log lines about a failed or broken-off connection off the screen: the error says it once."""
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio")]
    levels = [logger.level for logger in loggers]
    children = [
        (logger, logger.level)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.startswith("distributed.") and logger.level
    ]
    try:
        for logger in [*loggers, *(child for child, _ in children)]:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in [*zip(loggers, levels, strict=True), *children]:
            logger.setLevel(level)
