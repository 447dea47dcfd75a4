"""Makes all mutations and writes what came of them: `python -m tests.mutations` writes docs/verify.md."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.mutations import blind, fourth, page, sighted, third
from tests.mutations.judging import Judgement, judged
from tests.mutations.mutation import Mutation


def made(mutation: Mutation) -> Judgement:
    """Makes one in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        return judged(mutation, Path(directory))


def main() -> None:
    """All of every author, one after another."""
    found = {}
    for author in (sighted, blind, third, fourth):
        found[author.__name__.rpartition(".")[2]] = [made(mutation) for mutation in author.MUTATIONS]
    page.PATH.write_text(page.text(found))
    print(f"wrote {page.PATH}")


if __name__ == "__main__":
    sys.exit(main())
