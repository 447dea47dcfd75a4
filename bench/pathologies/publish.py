"""Writes the results of the pathologies as tables of docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench import publish
from bench.pathologies.results import Result
from bench.tables import markdown
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.record.run import Run

NAME = "pathologies"


def write(docs: Path, made: Sequence[Result], healthy: Sequence[Result]) -> Path:
    """Write both tables and the totals between the page's markers."""
    busy = [result.busy_percent for result in (*made, *healthy) if result.bundle]
    columns = ["construction", "saves at most", "wall", "right?"]
    sick = ["pathology", columns[0], "expected", "first above noise", *columns[1:]]
    parts = [
        markdown(sick, ([one.name, one.how, one.expected, *_found(one)] for one in made)),
        "Healthy runs; they should have no finding above noise:",
        markdown(
            ["run", columns[0], "above noise", *columns[1:]], ([one.name, one.how, *_found(one)] for one in healthy)
        ),
        f"**{summary(made, healthy)}**",
    ]
    return publish.of_runs(docs, NAME, _runs((*made, *healthy)), busy, parts)


def summary(made: Sequence[Result], healthy: Sequence[Result]) -> str:
    """Return the sentence with the totals."""
    right = sum(result.right for result in made)
    loud = sum(bool(result.above_noise) for result in healthy)
    lost = sum(bool(result.why_not) or not result.wall_ns for result in healthy)
    rest = f"; {lost} of them could not run" if lost else ""
    return f"Right in {right} of {len(made)}; findings above noise in {loud} of {len(healthy)} healthy runs{rest}."


def line(result: Result) -> str:
    """Return the progress line of a run that has ended."""
    if result.why_not:
        return f"{result.name}: could not run: {result.why_not}"
    found = f"{result.first} ({_s(result.saves_ns)} of {_s(result.wall_ns)})" if result.first else "nothing above noise"
    return f"{result.name}: {result.status}, {found}; expected {result.expected or 'nothing'}: {_verdict(result)}"


def _found(result: Result) -> list[str]:
    if result.why_not and not result.bundle:
        return [f"not run: {_plain(result.why_not)}", "-", "-", "no"]
    notes = [f"no fault: {_plain(result.why_not)}"] if result.why_not else []
    notes += [f"run {result.status}: {_plain(result.reason)}"] if result.status != "ok" else []
    first = "; ".join([result.first or "none", *notes])
    return [first, _s(result.saves_ns) if result.first else "-", _s(result.wall_ns), _verdict(result)]


def _verdict(result: Result) -> str:
    return "yes" if result.right else "no"


def _plain(text: str) -> str:
    """Remove characters that would end a cell."""
    return " ".join(text.replace("|", "/").split())


def _s(ns: int) -> str:
    return f"{ns / 1e9:.1f} s"


def _runs(every: Sequence[Result]) -> list[Run]:
    """Return the records of the runs that ended well."""
    records = []
    for result in every:
        if result.bundle and result.status == "ok":
            try:
                records.append(Bundle(Path(result.bundle)).read())
            except BundleError:
                continue  # the bundle was removed, its result was kept
    return records
