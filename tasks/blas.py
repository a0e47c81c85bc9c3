"""One thread for scipy's optimisers, whose sums otherwise depend on how many cores there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()
_inside: list[Any] = []


@cache
def _controller() -> Any:
    # Only libraries that are loaded can be told; and looking for them takes a millisecond.
    import scipy.optimize  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which BLAS has one thread, in this whole process: until the last of several threads leaves it.

    Notes
    -----
    From 10 000 numbers on OpenBLAS splits even a dot product over its threads, so that the last bits would be those of
    the machine. Its threads wait for each other, too: on two busy cores L-BFGS took ten times as long as with one.
    """
    with _lock:
        # The first to come keeps what was set before, so that the last to go can set it again.
        _inside.append(None if _inside else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            if len(_inside) == 1:
                _inside[0].restore_original_limits()
                _inside.clear()
            else:
                _inside.pop()
