"""Skips, with its reason, what needs a package that only one integration needs."""

import os
from importlib.util import find_spec

import pytest


def needs(*packages: str) -> None:
    """Skip a test module unless these packages are installed; fail it if VBDROP_EXTRAS asks for all of them."""
    missing = [package for package in packages if find_spec(package) is None]
    if not missing:
        return
    reason = f"NOT TESTED: there is no {' and no '.join(missing)} here; `make test-integrations` installs it"
    if os.environ.get("VBDROP_EXTRAS") == "all":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
