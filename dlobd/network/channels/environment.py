"""Variables for native libraries that read the environment once, when they are loaded or begin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def temporarily(variables: Mapping[str, str]) -> Iterator[None]:
    """In the environment of this process, which others read too, for no longer than needed."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
