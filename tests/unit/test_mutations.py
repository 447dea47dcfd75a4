"""Each mutation of captured evidence comes out as docs/verify.md says: noticed, and by what, or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutations import blind, fourth, page, sighted, third
from tests.mutations.judging import copied, judged, noticed
from tests.mutations.mutation import Mutation

EVERY = (*sighted.MUTATIONS, *blind.MUTATIONS, *third.MUTATIONS, *fourth.MUTATIONS)
UNNOTICED = ("not noticed", "-")
TARGET = 0.95
"""Of those that change a headline and leave a contradiction."""


@pytest.mark.parametrize("mutation", EVERY, ids=lambda mutation: mutation.name)
def test_a_mutation_comes_out_as_the_page_says(tmp_path: Path, mutation: Mutation) -> None:
    """Sealed again as a forger would: whether a headline changes, and whether it is noticed. The page is written by
    `python -m tests.mutations`."""
    rows = {cells[0]: cells for cells in map(_cells, page.PATH.read_text().splitlines())}
    found, said = _cells(page.row(judged(mutation, tmp_path))), rows[mutation.name]
    assert found[:3] == said[:3]
    assert (found[3] == "none", found[4] in UNNOTICED) == (said[3] == "none", said[4] in UNNOTICED)


def _cells(line: str) -> list[str]:
    return line.strip("| ").split(" | ")


def test_the_page_has_these_mutations_and_no_others() -> None:
    """One row each, at least forty of each author."""
    rows = re.findall(r"^\| ([^|]*) \| [\w-]+-(?:run|trainer) \|", page.PATH.read_text(), re.MULTILINE)
    assert rows == [mutation.name for mutation in EVERY]
    assert min(len(sighted.MUTATIONS), len(blind.MUTATIONS)) >= 40


def test_nearly_all_that_leave_a_contradiction_are_noticed() -> None:
    """By the page's own rows."""
    lines = page.PATH.read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if re.search(r"\| [\w-]+-(?:run|trainer) \|", line)]
    counted = [row for row in rows if row[2] != "nothing" and row[3] != "none"]
    noticed = [row for row in counted if row[4] != "not noticed"]
    assert len(noticed) >= TARGET * len(counted)
    assert f"| all | {len(rows)} | {len(counted)} | {len(noticed)} (" in page.PATH.read_text()


@pytest.mark.parametrize("name", sorted({mutation.bundle for mutation in EVERY}))
def test_what_was_only_sealed_again_is_not_noticed(tmp_path: Path, name: str) -> None:
    """A bundle whose evidence nobody edited contradicts nothing."""
    bundle = copied(name, tmp_path)
    run = bundle.read_json()
    assert list(noticed(bundle, run, run)) == []
