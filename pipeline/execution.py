"""Where a graph runs: in this process on threads, or on a Dask cluster. The graphs and their results are the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import dask
from dask.callbacks import Callback
from dask.utils import key_split

from tasks.warmup import warm_up

Progress = Callable[[str, int, int], None]
Graph = Mapping[Any, Any]

# What a task may plan to use of a worker's memory: the rest is for the data in flight and for Dask itself.
USABLE_SHARE = 0.6


class Executor(Protocol):
    """Runs graphs. A handle stands for a result that stays where it was computed; graphs may contain handles."""

    n_threads: int
    overhead: float
    allowed_bytes: int

    def warm_up(self, code_type: str = "int8", weight_type: str = "int64", kernels: str = "em") -> None:
        """Compile the kernels wherever tasks will run, so that no stage pays for it."""
        ...

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """The results behind handles."""
        ...

    def persist(
        self, graph: Graph, keys: Sequence[Any], progress: Progress | None = None, watch: str = ""
    ) -> list[Any]:
        """Compute and keep: one handle a key. Progress counts the finished tasks whose keys begin with `watch`."""
        ...

    def gather(self, graph: Graph, keys: Sequence[Any], progress: Progress | None = None, watch: str = "") -> list[Any]:
        """Compute and return the results themselves."""
        ...

    def spread(self, function: Callable[..., Any], argument_lists: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run one call a worker thread, spread evenly, and keep: one handle a call."""
        ...

    def collect(self, function: Callable[..., Any], argument_lists: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run independent calls, each where its first handle lies, and return the results in order."""
        ...


def _watched(graph: Graph, watch: str) -> int:
    return sum(1 for key in graph if key_split(key) == watch)


def _is_chain(graph: Graph) -> bool:
    """Whether no stage has two tasks: then threads have nothing to share, and starting them costs 3 ms."""
    stages = Counter(key_split(key) for key in graph)
    return max(stages.values(), default=0) <= 1


class _Count(Callback):
    """Report finished tasks of one stage to a progress function."""

    def __init__(self, graph: Graph, progress: Progress, watch: str) -> None:
        self.progress, self.watch, self.done, self.total = progress, watch, 0, _watched(graph, watch)
        progress(watch, 0, self.total)
        super().__init__(posttask=self.count)

    def count(self, key: Any, *_: Any) -> None:
        if key_split(key) == self.watch:
            self.done += 1
            self.progress(self.watch, self.done, self.total)


class LocalExecutor:
    """This process: Dask's threaded scheduler, the kernels release the interpreter lock."""

    # Seconds that handing a task over costs; splitting work finer than this does not pay.
    overhead = 0.001

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or dask.system.CPU_COUNT
        self.allowed_bytes = int(USABLE_SHARE * _available_memory() / self.n_threads)

    def warm_up(self, code_type: str = "int8", weight_type: str = "int64", kernels: str = "em") -> None:
        """See `Executor.warm_up`."""
        warm_up(code_type, weight_type, kernels)

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """See `Executor.fetch`."""
        return list(handles)

    def gather(self, graph: Graph, keys: Sequence[Any], progress: Progress | None = None, watch: str = "") -> list[Any]:
        """See `Executor.gather`."""
        from contextlib import nullcontext

        with _Count(graph, progress, watch) if progress else nullcontext():
            if self.n_threads == 1 or _is_chain(graph):
                return list(dask.get(dict(graph), list(keys)))
            from dask import threaded

            return list(threaded.get(dict(graph), list(keys), num_workers=self.n_threads))

    persist = gather

    def collect(self, function: Callable[..., Any], argument_lists: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Executor.collect`."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self.n_threads) as pool:
            return list(pool.map(lambda arguments: function(*arguments), argument_lists))

    spread = collect


class ClusterExecutor:
    """A Dask cluster behind a `distributed.Client`."""

    overhead = 0.02

    def __init__(self, client: Any) -> None:
        self.client = client
        threads = client.nthreads()
        if not threads:
            client.wait_for_workers(1)
            threads = client.nthreads()
        self.n_threads = max(1, sum(threads.values()))
        workers = client.scheduler_info(n_workers=-1)["workers"]
        limits = [w["memory_limit"] / max(w["nthreads"], 1) for w in workers.values() if w.get("memory_limit")]
        self.allowed_bytes = int(USABLE_SHARE * min(limits, default=_available_memory() / self.n_threads))

    def warm_up(self, code_type: str = "int8", weight_type: str = "int64", kernels: str = "em") -> None:
        """See `Executor.warm_up`."""
        self.client.run(_warm_up_aside, code_type, weight_type, kernels)

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """See `Executor.fetch`."""
        return list(self.client.gather(list(handles)))

    def persist(
        self, graph: Graph, keys: Sequence[Any], progress: Progress | None = None, watch: str = ""
    ) -> list[Any]:
        """See `Executor.persist`."""
        from distributed import wait

        futures = self._start(graph, keys, progress, watch)
        wait(futures)
        for future in futures:
            if future.status != "finished":
                future.result()  # raises what the task raised
        return futures

    def gather(self, graph: Graph, keys: Sequence[Any], progress: Progress | None = None, watch: str = "") -> list[Any]:
        """See `Executor.gather`."""
        return list(self.client.gather(self._start(graph, keys, progress, watch)))

    def _start(self, graph: Graph, keys: Sequence[Any], progress: Progress | None, watch: str) -> list[Any]:
        if progress is None:
            return list(self.client.get(dict(graph), list(keys), sync=False))
        from distributed import as_completed

        watched = [key for key in graph if key_split(key) == watch]
        futures = self.client.get(dict(graph), [*keys, *(k for k in watched if k not in set(keys))], sync=False)
        progress(watch, 0, len(watched))
        by_key = {f.key: f for f in futures}
        results = [by_key[k] for k in keys]
        pending = [by_key.pop(k) for k in watched]
        del futures, by_key
        # Each future is let go as it finishes: a watched result must not stay in memory for being watched.
        for done, future in enumerate(as_completed(pending), start=1):
            if future in pending:
                pending.remove(future)
            if future.status == "error" and future not in results:
                future.result()
            progress(watch, done, len(watched))
        return results

    def spread(self, function: Callable[..., Any], argument_lists: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Executor.spread`."""
        addresses = [address for address, n in sorted(self.client.nthreads().items()) for _ in range(n)]
        return [
            self.client.submit(
                function, *arguments, workers=[addresses[i * len(addresses) // len(argument_lists)]],
                allow_other_workers=True, pure=False,
            )
            for i, arguments in enumerate(argument_lists)
        ]  # fmt: skip

    def collect(self, function: Callable[..., Any], argument_lists: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Executor.collect`."""
        return list(self.client.gather([self.client.submit(function, *a, pure=False) for a in argument_lists]))


async def _warm_up_aside(code_type: str, weight_type: str, kernels: str) -> None:
    """Warm up in a thread: compiling takes seconds, during which a worker must go on answering."""
    import asyncio

    await asyncio.to_thread(warm_up, code_type, weight_type, kernels)


def make_executor(client: Any = None) -> Executor:
    """The executor for a client, or for this process where there is none."""
    return LocalExecutor() if client is None else ClusterExecutor(client)


def _available_memory() -> float:
    """Bytes this machine, or the control group it runs in, has to give."""
    physical = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            return min(physical, float(file.read()))
    except (OSError, ValueError):  # no such control group, or its limit is "max"
        return physical
