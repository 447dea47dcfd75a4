"""What must hold of runs of the quick experiment, whichever way they went."""

from __future__ import annotations

import json

import pytest

from dlobd.bundle.store import Bundle


def losses(bundle: Bundle) -> list[float]:
    """The loss of every step, as the chief reported it."""
    markers = json.loads((bundle.evidence / "markers.json").read_text())
    found: list[float] = json.loads(markers["rank-0.json"])["losses"]
    return found


def explained(bundle: Bundle) -> dict[str, int]:
    """Layer -> ns of a run whose parts sum exactly and are explained but for 5 %."""
    run = json.loads((bundle.path / "run.json").read_text())
    assert run["status"] == "ok", run["reason"]
    layers = {layer["layer"]: layer["ns"] for layer in run["layers"]}
    assert sum(layers.values()) + run["unattributed_ns"] == run["wall_ns"]
    unknown_ns = run["unattributed_ns"] + sum(layer["unexplained_ns"] for layer in run["layers"])
    assert unknown_ns <= 0.05 * run["wall_ns"], run["layers"]
    # what a person's own code does inside is the one part of a layer that is not seen while another is
    hidden = {item["layer"] for item in run["not_measured"] if item["inside"] != "user"}
    assert hidden & {name for name, ns in layers.items() if ns} == set()
    return layers


def same_training(one: Bundle, other: Bundle) -> None:
    """Fails unless every step had the same loss: the same batches in the same order, the same weights."""
    assert len(losses(one)) == len(losses(other)) == 30
    assert losses(one) == pytest.approx(losses(other), rel=1e-5)
