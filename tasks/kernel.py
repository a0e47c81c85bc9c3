"""How kernels are compiled: without the interpreter lock, and cached on disk under a digest of all their sources.

Numba looks for changes in a kernel's own file only, yet compiles into it the kernels that it calls from other files:
after an edit there it would go on running the old code. So the cache's directory is named after this package's sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba


@cache
def cache_directory() -> str:
    """Where compiled kernels lie: beside the sources where that can be written, else in the user's cache."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(here.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    name = f"kernels-{digest.hexdigest()[:16]}"
    beside = here / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        if os.access(beside, os.W_OK):
            return str(beside / name)
    except OSError:
        pass
    return str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "dask-pgm" / name)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on arrays with Numba: `nogil`, cached; `NUMBA_CACHE_DIR` is respected where it is set."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = before or cache_directory()
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        numba.config.CACHE_DIR = before
