"""The choice of long tests by CI: those of changed rooms, as far as time allows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shard", TOP / ".ci" / "shard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names() -> list[str]:
    return sorted(path.name for path in (TOP / "tests" / "full").iterdir() if list(path.glob("test_*.py")))


def test_every_room_belongs_to_a_shard(shard: ModuleType) -> None:
    rows = [row for rooms in shard.ROOMS.values() for row in rooms.split()]
    for row in rows:
        assert (TOP / row).exists(), row
    package = [path for path in (TOP / "dlobd").iterdir() if path.name not in ("__pycache__", "py.typed")]
    rooms = [f"dlobd/{path.name}{'/' * path.is_dir()}" for path in package if not path.name.startswith("__")]
    for room in [*rooms, "jobs/", "yarn/", *(f"tests/full/{name}/" for name in names())]:
        assert any(room.startswith(row) or row.startswith(room) for row in rows), room


def test_every_shard_has_its_minutes_and_fits_beside_make_test(shard: ModuleType) -> None:
    assert set(shard.ROOMS) == set(shard.MINUTES) == set(names())
    for minutes in shard.MINUTES.values():
        assert shard.MAKE_TEST_MINUTES + minutes <= shard.LIMIT_MINUTES - shard.SPARE_MINUTES


def test_the_largest_change_comes_first_and_what_does_not_fit_is_listed(shard: ModuleType) -> None:
    faults = {"tests/full/faults/test_deaths.py": 50}
    ways = {"tests/full/ways/test_ways_matrix.py": 40}
    assert shard.chosen({**faults, **ways}, names(), 0) == (["faults"], ["ways"])
    assert shard.chosen({**faults, "tests/full/ways/x.py": 60}, names(), 0) == (["ways"], ["faults"])
    assert shard.chosen({"CHANGELOG.md": 9}, names(), 1) == ([names()[1]], [])
    assert [shard.chosen({}, names(), day)[0] for day in range(len(names()))] == [[name] for name in names()]
