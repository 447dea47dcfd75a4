"""Each blind mutation edits files of its bundle, and changes a figure or a fact of the record computed anew."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dlobd.attribution import record
from dlobd.bundle.store import Bundle
from dlobd.experiment import own_job
from tests.mutations import blind
from tests.mutations.mutation import Mutation

CAPTURES = Path(__file__).parents[1] / "data"
NO_HEADLINES = ("checks", "audits", "warnings", "clips")
"""What a record says of its own evidence; a mutation is to change something else."""


@pytest.fixture(scope="module")
def headlines() -> dict[str, dict[str, Any]]:
    """Name of a capture to what its record says, computed anew."""
    return {each.name: _headlines(each) for each in CAPTURES.iterdir() if each.is_dir()}


@pytest.mark.parametrize("mutation", blind.MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_blind_mutation_changes_files_and_a_headline(
    mutation: Mutation, headlines: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """It edits a copy of its bundle, and the record of that copy differs."""
    capture, edited = CAPTURES / mutation.bundle, tmp_path / mutation.bundle
    shutil.copytree(capture, edited)
    mutation.apply(edited)

    assert _contents(edited) != _contents(capture)
    assert _headlines(edited) != headlines[mutation.bundle]


def test_blind_mutations_are_told_apart_by_their_names() -> None:
    """There are forty of them, and none twice."""
    names = [mutation.name for mutation in blind.MUTATIONS]
    assert len(names) == len(set(names)) >= 40


def _headlines(path: Path) -> dict[str, Any]:
    bundle = Bundle(path)
    run = bundle.read_json()
    computed = run | record.computed(bundle, own_job.from_dict(run["configuration"])).to_json()
    return {name: value for name, value in computed.items() if name not in NO_HEADLINES}


def _contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
