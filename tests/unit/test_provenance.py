"""What a run says about the machine it ran on."""

from __future__ import annotations

import platform

import pytest

import dlobd
from dlobd.run import provenance


def test_every_package_has_its_version_or_null(monkeypatch: pytest.MonkeyPatch) -> None:
    found = provenance.versions("17.0.1")
    assert (found["dlobd"], found["java"], found["hadoop"]) == (dlobd.__version__, "17.0.1", provenance.HADOOP_VERSION)
    assert found["python"] == platform.python_version()
    assert found["tensorflowonspark"] == "2.2.5"
    assert provenance.versions(None)["java"] is None
    monkeypatch.setattr(provenance, "_PACKAGES", ("no-such-package-of-anybody", "numpy"))
    found = provenance.versions(None)
    assert found["no-such-package-of-anybody"] is None
    assert found["numpy"]
