"""Where compiled kernels are kept: under a digest of every source, so that an edit anywhere compiles anew."""

import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from tasks import kernel as module
from tasks.instances import mix
from tasks.kernel import cache_directory, kernel

SOURCES = Path(module.__file__).parent


def directory_of(package, **environment):
    """The cache directory that a copy of the package names, in a process of its own."""
    code = "from tasks.kernel import cache_directory; print(cache_directory())"
    command = [sys.executable, "-c", code]
    # The current directory comes first on the path of `-c`.
    result = subprocess.run(
        command, cwd=package.parent, capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    return Path(result.stdout.strip())


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(SOURCES, tmp_path / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "tasks"


def test_any_change_of_any_source_changes_the_directory(copy):
    first = directory_of(copy)
    assert first.parent == copy / "__pycache__"
    assert first.name == Path(cache_directory()).name
    assert directory_of(copy) == first
    seen = {first.name}
    for source in ("em.py", "instances.py", "errors.py"):
        with (copy / source).open("a") as file:
            file.write("\n")
        seen.add(directory_of(copy).name)
    (copy / "extra.py").write_text("")
    seen.add(directory_of(copy).name)
    (copy / "extra.py").rename(copy / "other.py")
    seen.add(directory_of(copy).name)
    assert len(seen) == 6


def test_an_installation_that_cannot_be_written(copy, tmp_path):
    """Then the user's cache; a file in the way stands for a read-only directory, which root could write."""
    shutil.rmtree(copy / "__pycache__", ignore_errors=True)
    (copy / "__pycache__").write_text("")
    found = directory_of(copy, XDG_CACHE_HOME=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1")
    assert found == tmp_path / "cache" / "dask-pgm" / Path(cache_directory()).name


def test_kernels_release_the_lock_and_are_cached():
    assert mix.targetoptions["nogil"]
    assert type(mix._cache).__name__ == "FunctionCache"
    assert Path(mix._cache.cache_path).is_relative_to(numba.config.CACHE_DIR or cache_directory())


def test_numba_is_left_as_it_was(monkeypatch):
    for before in ("", "/somewhere/else"):
        monkeypatch.setattr(numba.config, "CACHE_DIR", before)
        kernel(lambda x: x + 1) if before == "" else None
        assert before == numba.config.CACHE_DIR
