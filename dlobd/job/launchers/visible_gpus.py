"""Which GPUs CUDA shows to a process: a person may have set some aside for others."""

from __future__ import annotations

import os

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Names them, by number or id; launchers hand a Spark task's GPUs on in it."""

NONE = "-1"


def named() -> list[str] | None:
    """Those that the variable names, up to the first that is none, as CUDA reads it; None where it is not set."""
    if VISIBLE not in os.environ:
        return None
    found: list[str] = []
    for word in os.environ[VISIBLE].split(","):
        if not word.strip() or word.strip().startswith("-"):
            break
        found.append(word.strip())
    return found


def address(number: int) -> str:
    """What CUDA calls the GPU that is the `number`th of those that this process may use.

    Raises:
        IndexError: the variable names fewer.
    """
    found = named()
    return str(number) if found is None else found[number]
