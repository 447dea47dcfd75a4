"""A mutation: one edit of a bundle's evidence, and what in the same bundle still says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutation:
    """One edit, after which the report is computed anew and the bundle sealed.

    bundle: which capture of tests/data it edits.
    apply: edits a copy of that bundle in place, whose directory it is given; raises if it found nothing to edit.
    contradicts: which source in the edited bundle still says otherwise, for people; empty if none does.
    """

    name: str
    bundle: str
    apply: Callable[[Path], None]
    contradicts: str
