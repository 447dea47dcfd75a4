"""Each file of each captured bundle, damaged in each way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.captured import NAMES
from tests.damage import DAMAGE, check, names


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("run", "kind"), [(run, kind) for run in NAMES for kind in DAMAGE])
def test_each_file_damaged_in_each_way(run: str, kind: str, tmp_path: Path) -> None:
    for number, name in enumerate(names(run, kind)):
        (directory := tmp_path / str(number)).mkdir()
        check(run, kind, name, directory)
        shutil.rmtree(directory)
