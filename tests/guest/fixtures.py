"""What the tests in the guest share."""

from __future__ import annotations

import pytest

from .packages import missing


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """Skips where QEMU or the kernel are not installed, which CI does not allow."""
    if lacking := missing():
        pytest.skip(f"not installed: {', '.join(lacking)}; tests/guest/packages.txt has all")
