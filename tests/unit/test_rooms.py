"""The rooms: their docstrings, the size of modules, and names of modules in strings."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import requests  # noqa: F401  its first import binds a socket, which a unit test may not

from dlobd.axes import REGISTRIES

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "dlobd"
MAX_LINES = 800
MIN_LINES = 40

SMALL = {
    "__main__.py": "the entry point of `python -m dlobd`",
    "attribution/evidence_quality.py": "a concept of the kernel",
    "bundle/noise.py": "run-to-run variation, for the runner and for reports",
    "cli/": "a file per verb",
    "evidence/attempts.py": "a parser per kind of record",
    "evidence/jvm_records.py": "a parser per kind of record",
    "evidence/timestamp.py": "a type of all parsers",
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
    "timeline/": "a file per kind of lane",
    "trust/checks.py": "the list of all checks",
}
"""Modules below MIN_LINES, or the rooms where they may be, with the reason."""

WRITTEN = [
    *PACKAGE.rglob("*.py"), *(TOP / "jobs").glob("*.py"), *(TOP / "analysis").glob("*.py"),
    *(TOP / "bench").glob("*.py"), *(TOP / "docs").glob("*.md"), *(TOP / "docs").glob("*.py"),
    *(TOP / ".ci").glob("*"), TOP / "Makefile",
    TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "pyproject.toml",
]  # fmt: skip


def test_every_folder_says_what_may_enter() -> None:
    """In the docstring of its __init__."""
    for path in PACKAGE.rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert len(docstring) > 30, path


def test_a_module_has_one_reason() -> None:
    """A module above 800 lines has several; one below 40 belongs to its reader, unless SMALL gives the reason."""
    lines = {str(path.relative_to(PACKAGE)): _lines(path) for path in PACKAGE.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}
    small = {path for path, count in lines.items() if count < MIN_LINES and not path.endswith("__init__.py")}
    assert {path for path in small if not path.startswith(tuple(SMALL))} == set()
    assert [row for row in SMALL if not any(path.startswith(row) for path in small)] == [], "remove these rows"


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _named(text: str) -> Iterator[str]:
    """Dotted names of our modules, also in strings and comments, and our files by their path."""
    yield from re.findall(r"(?<![\w./-])dlobd(?:\.[a-z]\w*)+(?::\w+)?", text)
    yield from re.findall(r"(?<![\w.-])dlobd/[\w/]+\.py\b", text)


def test_a_name_in_a_string_names_something() -> None:
    """Registries, `-m` of child processes, Spark's daemon modules, comments and pages."""
    wrong = [
        f"{path.relative_to(TOP)} names {name}"
        for path in WRITTEN
        for name in sorted(set(_named(path.read_text())))
        if not exists(name)
    ]
    assert wrong == []


@cache
def exists(name: str) -> bool:
    """Whether a dotted name is a module or something in one, or a path a file."""
    if name.endswith(".py"):
        return (TOP / name).exists()
    if name in {registry.group for registry in REGISTRIES.values()}:
        return True  # of entry points
    module, _, attribute = name.partition(":")
    parts = module.split(".") + ([attribute] if attribute else [])
    for cut in range(len(parts), 0, -1):
        if _is_module(".".join(parts[:cut])):
            found: object = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                if not hasattr(found, part):
                    return False
                found = getattr(found, part)
            return True
    return False


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_check_of_names_can_fail() -> None:
    """A module that is gone, an attribute that is gone, and a file that is gone."""
    assert exists("dlobd.job.launchers.tfos:TfosLauncher")
    assert exists("dlobd.tracing.span")
    for gone in ("dlobd.launchers.tfos", "dlobd.job.launchers.tfos:Gone", "dlobd.tracing.gone", "dlobd/trace.py"):
        assert not exists(gone), gone
