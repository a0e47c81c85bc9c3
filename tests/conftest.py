"""What all tests share."""

import os

import pytest
from hypothesis import settings

from pipeline.execution import LocalExecutor

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
        for module in ("learning", "scoring", "planning"):
            monkeypatch.setattr(f"pipeline.{module}.make_executor", lambda client=None: executor)
        return executor

    return use
