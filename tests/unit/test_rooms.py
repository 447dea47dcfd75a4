"""The rooms: the size of modules."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "dlobd"
MAX_LINES = 800
MIN_LINES = 40

SMALL = {
    "__main__.py": "the entry point of `python -m dlobd`",
    "bundle/noise.py": "run-to-run variation, for the runner and for reports",
    "cli/": "a file per verb",
    "hadoop/http_session.py": "HTTP to clusters, without proxies",
    "job/launchers/distributor_daemon.py": "an entry point that Spark starts by its name, without arguments",
    "job/launchers/tfos_daemon.py": "an entry point, as above",
    "job/launchers/tfos_stock_daemon.py": "an entry point, as above",
    "job/models/": "a file per model, with its source and settings in its docstring",
    "job/user/child/sitecustomize.py": "an entry point, which Python imports by its name",
    "job/user/daemon.py": "an entry point, as above",
    "job/user/stock_daemon.py": "an entry point, as above",
    "marks.py": "the functions for users' scripts, which import no other module",
    "measures/statistics.py": "quantiles, for all measures",
    "run/collect/workers.py": "copies of logs, for two places",
    "run/observer.py": "a protocol of two modules",
    "run/schedulers/": "a file per scheduler",
    "trust/checks.py": "the list of all checks",
}
"""Modules below MIN_LINES, or the rooms where they may be, with the reason."""


def test_a_module_has_one_reason() -> None:
    """A module above 800 lines has several; one below 40 belongs to its reader, unless SMALL gives the reason."""
    lines = {str(path.relative_to(PACKAGE)): _lines(path) for path in PACKAGE.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}
    small = {path for path, count in lines.items() if count < MIN_LINES and not path.endswith("__init__.py")}
    assert {path for path in small if not path.startswith(tuple(SMALL))} == set()
    assert [row for row in SMALL if not any(path.startswith(row) for path in small)] == [], "remove these rows"


def test_http_to_clusters_has_one_room() -> None:
    """Other modules would use the proxies of the environment. Published files come through them."""
    opens = re.compile(r"requests\.(get|put|post|head|delete|request|Session)\(|urlopen\(|HTTPS?Connection\(")
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if opens.search(path.read_text())}
    assert found == {"hadoop/http_session.py", "run/data_sets.py"}


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())
