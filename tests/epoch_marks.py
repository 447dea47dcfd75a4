"""Marks of epochs put into a captured run, as a trainer writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd.bundle.store import Bundle
from tests.captured import copy_of, note_sizes
from tests.recorded import read_all

DATA = Path(__file__).parent / "data"
RIGHT = (1000, 1500, 1600)
"""Of 2,000 test samples, after each of three epochs of ten steps."""


def marked(run: str, directory: Path, evaluated: tuple[int, ...] = (1, 2, 3)) -> Bundle:
    """A copy of a captured run of 30 steps, in which the chief marks three epochs in place of its own, and evaluates
    these of them.

    An epoch ends 1 us after its tenth step, and its evaluation has lasted 5 us.
    """
    bundle = Bundle(copy_of(run, directory))
    chief = next(p for p in read_all(bundle.spans) if p.process.role == "chief")
    lines: list[dict[str, Any]] = []
    for epoch, step in enumerate(chief.steps()[9::10], 1):
        at_ns = step.end_ns + 1_000
        lines.append({"k": "i", "n": kinds.EPOCH_DONE, "t": at_ns, "a": {"epoch": epoch, "loss": 2.0 / epoch}})
        if epoch in evaluated:
            tested = {"epoch": epoch, "samples": 2000, "right": RIGHT[epoch - 1]}
            lines.append({"k": "i", "n": kinds.EPOCH_EVALUATED, "t": at_ns + 5_000, "a": tested})
    own = (f'"n":"{kinds.EPOCH_DONE}"', f'"n":"{kinds.EPOCH_EVALUATED}"')
    kept = [line for line in chief.path.read_text().splitlines() if not any(mark in line for mark in own)]
    chief.path.write_text("".join(f"{line}\n" for line in [*kept, *map(json.dumps, lines)]))
    note_sizes(bundle.path)
    return bundle
