"""What every test can rely on."""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def compiler() -> str:
    """The C compiler; where there is none, its tests are skipped, or fail if CI=true asks for all of them."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    reason = "NOT TESTED: there is no C compiler here (none of $CC, cc, gcc, clang); install gcc"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
