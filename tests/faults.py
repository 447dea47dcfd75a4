"""What every test shares that breaks something while a job trains."""

from __future__ import annotations

from typing import Any

import dlobd as library
from dlobd.bundle.store import Bundle

LONG = "epochs=200"
"""Of 30 steps: minutes, unless something ends it."""

END_S = 150
"""Within which a command has to end after something was killed, on a machine that others use too."""


def kept(bundle: Bundle, status: str) -> dict[str, Any]:
    """The record of a run that was ended while it trained, after a look at its evidence."""
    record = bundle.read_json()
    assert record["status"] == status
    assert bundle.verify() == []
    assert sum(layer["ns"] for layer in record["layers"]) + record["unattributed_ns"] == record["wall_ns"] > 0
    steps = library.load(bundle.path).steps()
    assert set(steps["role"]) == {"chief", "worker"}, "the spans up to then"
    assert "first step done" in [event["event"] for event in record["startup"]]
    assert record["metrics"]["test_accuracy"] is None
    assert any("no recorded end" in warning for warning in record["warnings"])
    return record
