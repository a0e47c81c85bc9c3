"""What all tests share."""

import os

import pytest
from hypothesis import settings

import pipeline.solving
from pipeline.execution import LocalExecutor
from tests.oracle import as_table, incomplete_data

# Loading kernels and a busy machine make single examples slow now and then; what is tested does not depend on time.
# The same examples every run: a failure can be repeated, and a run says the same as the one before.
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture
def threads(monkeypatch):
    """Have `learn` and `score` run in this process on so many threads; say what handing a task over costs."""

    def use(n, overhead=LocalExecutor.overhead):
        executor = LocalExecutor(n)
        executor.overhead = overhead
        for module in ("learning", "scoring", "planning", "structure"):
            monkeypatch.setattr(f"pipeline.{module}.make_executor", lambda client=None: executor)
        return executor

    return use


@pytest.fixture(scope="session")
def giant():
    """One sub-network of several blocks of instances."""
    network, start, rows = incomplete_data(71, 9, 6000, max_states=4)
    return network, start, as_table(network, rows)


@pytest.fixture
def splits(monkeypatch):
    """How many slices each split sub-network had."""
    counted: list[int] = []
    real = pipeline.solving._iterate

    def counting(executor, slices, *rest):
        counted.append(len(slices))
        return real(executor, slices, *rest)

    monkeypatch.setattr(pipeline.solving, "_iterate", counting)
    return counted
