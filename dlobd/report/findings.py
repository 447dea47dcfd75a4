"""Findings in the terminal: what would lower the overhead, with the evidence and the bound of each."""

from __future__ import annotations

from rich.console import Console

from dlobd.bundle.finding import Finding
from dlobd.bundle.run import Run
from dlobd.report import text
from dlobd.report.summary import title

PAGE = "docs/findings.md"

OLDER = "findings: unknown, as it was made by an older dlobd: dlobd verify"
NONE = "No setting is known that would lower the wall by more than equal runs differ."
BELOW_THAT = " What costs most below that:"
BELOW = "Below what equal runs differ by"


def findings(run: Run, console: Console) -> None:
    """Prints all of them: those above noise with evidence and remedy, the others in a line each."""
    if run.findings is None:
        text.line(console, f"\n{OLDER}")
        return
    if run.wall_ns is None:
        return
    text.heading(console, "What would lower it")
    above, below = split(run)
    if not above:
        text.line(console, none(run))
    for number, one in enumerate(above, 1):
        text.line(console, f"{number}. {says(one)}", "bold")
        for evidence in one.evidence:
            text.line(console, f"   {evidence}")
        text.line(console, f"   to lower it: {one.remedy}")
        text.line(console, f"   unless: {one.unless}")
        text.line(console, f"   {PAGE}#{one.finding}")
    rows = [
        (title(one.layer), f"{text.seconds(one.saves_ns):>9}  {one.says} To lower it: {one.remedy}") for one in below
    ]
    text.rows(console, f"{BELOW}: seconds at most", rows)


def none(run: Run) -> str:
    """That no finding is above noise."""
    return NONE + BELOW_THAT * bool(run.findings)


def says(one: Finding) -> str:
    """The finding, and what it would save at most."""
    most, least = text.seconds(one.saves_ns), text.seconds(one.lo_ns)
    sure = "" if least == most else f", by the boundaries' uncertainty {least}"
    return f"{one.says} Without it the wall is shorter by at most {most} s{sure}."


def split(run: Run) -> tuple[list[Finding], list[Finding]]:
    """Those above noise, and those below."""
    found = run.findings or ()
    return [one for one in found if one.above_noise], [one for one in found if not one.above_noise]
