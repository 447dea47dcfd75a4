"""What is compared: the main job by every launcher that goes through YARN and Spark, fed by Spark or reading itself.

It trains for longer and leaves no checkpoint, so that its step loop can be compared: what remains is input and steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlobd.experiment import files
from dlobd.schema import Experiment

STOCK, TFOS, BARRIER = "tfos-stock", "tfos", "barrier"

LOOP: dict[str, Any] = {"epochs": 6, "checkpoint_every_steps": 10**9}

WAYS = ((STOCK, "feed"), (TFOS, "feed"), (BARRIER, "feed"), (TFOS, "read"), (BARRIER, "read"))


def points() -> dict[str, Experiment]:
    """Label to experiment. All but launcher, input, the memory that a launcher needs, and `LOOP` are the main job's."""
    return {
        f"{launcher} {source}": replace(files.load("softmax-mnist", [f"launcher={launcher}"]), input=source, **LOOP)
        for launcher, source in WAYS
    }
