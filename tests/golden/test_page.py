"""The report page's data of a captured run, as text; of the timeline its sums, which aggregation must not change.

After a wanted change, `pytest tests/golden --update-golden` writes the expected text anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlobd.bundle.store import Bundle
from dlobd.fields import plain
from dlobd.report.page.data import document, source
from tests.page_traces import sums

DATA = Path(__file__).parents[1] / "data"
GOLDEN = Path(__file__).parent / "page.txt"
RUN = "quick-run"


def as_text(found: dict[str, Any]) -> str:
    """A line for each value, or for each row of a list; without the record and the run, which are the bundle's own."""
    (run,), (charts,) = found["runs"], found["charts"]["runs"]
    lines = [f"{key}: {json.dumps(found[key])}" for key in ("title", "comparison")]
    lines += _lines("common", found["common"])
    for key, value in (run | charts).items():
        if key == "timeline":
            lines += _timeline(value)
        elif key not in ("record", "run"):
            lines += _lines(key, value)
    return "\n".join(lines) + "\n"


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _lines(f"{name}.{key}", part)
    elif isinstance(value, list) and value:
        for place, part in enumerate(value):
            nested = isinstance(part, dict) and "rows" in part
            yield from _lines(f"{name}[{place}]", part) if nested else [f"{name}[{place}]: {json.dumps(part)}"]
    else:
        yield f"{name}: {json.dumps(value)}"


def _timeline(value: dict[str, Any]) -> Iterator[str]:
    for key in ("wall_ns", "lanes", "lanes_left_out", "spans", "merged_below_ns"):
        yield f"timeline.{key}: {json.dumps(value[key])}"
    yield f"timeline.slices: {len(value['slices'])}"
    for (lane, name), ns in sorted(sums(value).items()):
        yield f"timeline {lane}: {name}: {ns}"


def test_the_pages_data_is_as_expected(update_golden: bool) -> None:
    found = as_text(json.loads(json.dumps(plain(document([source(Bundle(DATA / RUN))])))))
    if update_golden:
        GOLDEN.write_text(found)
    assert found.splitlines() == GOLDEN.read_text().splitlines()
