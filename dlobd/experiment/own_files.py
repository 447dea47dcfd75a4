"""Settings that may name a user's own file, `model` and `dataset`, with the sha256 of the file.

A new experiment reads and hashes the file. A stored experiment has the sha256 and needs no file; a run of it compares
both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from dlobd import user_file
from dlobd.errors import DlobdError, UsageError

SHA256 = {"model": "model_sha256", "dataset": "dataset_sha256"}
"""Field -> field with the sha256 of its file."""

_DIGEST = re.compile("[0-9a-f]{64}")


def names_file(field: str, value: str) -> bool:
    """Return True if a setting names a user's own file. Raises UsageError if the name is malformed."""
    return field in SHA256 and user_file.named(value) is not None


def digests(values: Mapping[str, Any], given: Collection[str], at: Callable[[str], str]) -> dict[str, str]:
    """Return the sha256 of the user's files that an experiment names.

    Args:
        given: fields set by the user or by a file.
        at: returns the place of a field.

    Raises:
        UsageError: a file cannot be read, or a sha256 was given.
    """
    for field, sha256 in SHA256.items():
        if sha256 in given:
            raise UsageError(
                f"{at(sha256)}: {sha256} cannot be set: it is computed from the file that {field} names.", "omit it"
            )
    hashes = {}
    for field, sha256 in SHA256.items():
        if own := user_file.named(values.get(field, "")):
            try:
                hashes[sha256] = user_file.sha256_of(user_file.read(own.path))
            except DlobdError as error:
                raise UsageError(f"{at(field)}: {field} {error.what}", error.remedy) from None
    return hashes


def contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, problem) of stored sha256s that contradict their settings."""
    for field, sha256 in SHA256.items():
        names = user_file.named(values[field]) is not None
        if names and not _DIGEST.fullmatch(values[sha256]):
            yield sha256, f"{field} {values[field]} needs the sha256 of its file, not {values[sha256]!r}."
        if not names and values[sha256]:
            yield sha256, f"{sha256} needs a file, but {field} {values[field]} names none."
