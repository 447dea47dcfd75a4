"""Settings that may name a file of the user's own, `model` and `dataset`, and the sha256 that goes with each.

What a new experiment names is read and hashed here. A stored one has the sha256 already, and is read without the file:
a run of it compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from dlobd import user_file
from dlobd.errors import DlobdError, UsageError

SHA256 = {"model": "model_sha256", "dataset": "dataset_sha256"}
"""Field to the field with the sha256 of the file that it names."""

_DIGEST = re.compile("[0-9a-f]{64}")


def names_file(field: str, value: str) -> bool:
    """Whether a setting names a file of the user's own. Raises UsageError if it does so in a wrong way."""
    return field in SHA256 and user_file.named(value) is not None


def digests(values: Mapping[str, Any], said: Collection[str], at: Callable[[str], str]) -> dict[str, str]:
    """The sha256 of each file that an experiment names; nothing for a setting that names none.

    Args:
        said: the fields that the user, or a file, gave.
        at: field to where it was given.

    Raises:
        UsageError: a file cannot be read, or a sha256 was given.
    """
    for field, sha256 in SHA256.items():
        if sha256 in said:
            raise UsageError(
                f"{at(sha256)}: {sha256} cannot be set: it is computed from the file that {field} names.", "omit it"
            )
    found = {}
    for field, sha256 in SHA256.items():
        if own := user_file.named(values.get(field, "")):
            try:
                found[sha256] = user_file.sha256_of(user_file.read(own.path))
            except DlobdError as error:
                raise UsageError(f"{at(field)}: {field} {error.what}", error.remedy) from None
    return found


def contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, what is wrong) of each stored sha256 that does not go with its setting."""
    for field, sha256 in SHA256.items():
        names = user_file.named(values[field]) is not None
        if names and not _DIGEST.fullmatch(values[sha256]):
            yield sha256, f"{field} {values[field]} needs the sha256 of its file, not {values[sha256]!r}."
        if not names and values[sha256]:
            yield sha256, f"{sha256} goes with a file, and {field} {values[field]} names none."
