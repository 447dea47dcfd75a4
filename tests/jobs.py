"""Jobs whose storage is this machine's own directories."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dlobd.job.description import Job
from dlobd.schema import ADDED

EXAMPLE = {"name": "a b", "model": "softmax-regression", "learning_rate": 0.5, "dtype": "uint8", "classes": 10}
DEFAULTS: dict[str, Any] = {"str": "", "int": 1, "float": 0.5, "tuple[int, ...]": (28, 28)}


def job(directory: Path, **changes: Any) -> Job:
    """A job whose storage is this machine's own directories."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(Job)}
    values = {name: ADDED.get(name, DEFAULTS[kind]) for name, kind in fields.items()}
    return Job(**{**values, **EXAMPLE, "run_dir": str(directory / "run"), "webhdfs_url": "", **changes})
