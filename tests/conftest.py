"""What all tests share."""

import os

import pytest
from hypothesis import settings

from tasks.warmup import warm_up

# Loading kernels and a busy machine make single examples slow now and then; what is tested does not depend on time.
# The same examples every run: a failure can be repeated, and a run says the same as the one before.
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def kernels():
    """Kernels compiled before a test that measures or times something."""
    warm_up()
