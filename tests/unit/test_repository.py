"""The choice of long tests by CI, and the size of modules."""

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
    assert shard.chosen({"README.md": 9}, names(), 1) == ([names()[1]], [])
    assert [shard.chosen({}, names(), day)[0] for day in range(len(names()))] == [[name] for name in names()]


PACKAGE = TOP / "dlobd"
MAX_LINES = 800
MIN_LINES = 40

SMALL = {
    "__main__.py": "the entry point of `python -m dlobd`",
    "attribution/evidence_quality.py": "a concept of the kernel",
    "bundle/noise.py": "run-to-run variation, for the runner and for reports",
    "cli/": "a file per verb",
    "job/launchers/distributor_daemon.py": "an entry point that Spark starts by its name, without arguments",
    "job/launchers/tfos_daemon.py": "an entry point, as above",
    "job/launchers/tfos_stock_daemon.py": "an entry point, as above",
    "job/models/": "a file per model, with its source and settings in its docstring",
    "job/user/daemon.py": "an entry point, as above",
    "job/user/stock_daemon.py": "an entry point, as above",
    "measures/imports.py": "a file per measure",
    "measures/statistics.py": "quantiles, for all measures",
    "report/cost.py": "the price of a run, which no other table needs",
    "run/observer.py": "a protocol of two modules",
    "run/schedulers/": "a file per scheduler",
    "trust/checks.py": "the list of all checks",
}
"""Modules below MIN_LINES, or the rooms where they may be, with the reason."""


def test_a_module_has_one_reason() -> None:
    lines = {str(path.relative_to(PACKAGE)): _lines(path) for path in PACKAGE.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}
    small = {path for path, count in lines.items() if count < MIN_LINES and not path.endswith("__init__.py")}
    assert {path for path in small if not path.startswith(tuple(SMALL))} == set()
    assert [row for row in SMALL if not any(path.startswith(row) for path in small)] == [], "remove these rows"


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())
