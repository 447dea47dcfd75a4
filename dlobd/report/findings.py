"""Findings in the terminal: what would lower the overhead, with the evidence and the bound of each."""

from __future__ import annotations

from rich.console import Console

from dlobd.bundle.noise import UNKNOWN_NOISE, noise_ns, run_variation
from dlobd.record.run import Finding, Run
from dlobd.report import text
from dlobd.report.summary import title

PAGE = "docs/findings.md"

TITLE = "What would lower the overhead"
BELOW_THAT = " What costs most below that:"


def findings(run: Run, console: Console) -> None:
    """Prints all of them: those above noise with evidence and remedy, the others in a line each."""
    if run.wall_ns is None:
        return
    text.heading(console, TITLE)
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
    text.rows(console, f"Below noise, which is {noise(run)}: seconds at most", rows)


def none(run: Run) -> str:
    """That no finding is above noise."""
    words = f"No setting is known that would lower the wall by more than noise, which is {noise(run)}."
    return words + BELOW_THAT * bool(run.findings)


def noise(run: Run) -> str:
    """What a finding has to save to be above noise, and what that is."""
    earlier_walls_ns = run.noise.earlier_walls_ns or () if run.noise else ()
    wall_ns = run.wall_ns or 0
    length = f"{text.seconds(noise_ns(earlier_walls_ns, wall_ns))} s"
    if run_variation(earlier_walls_ns) is not None:
        return f"{length}, by which equal runs differ here"
    return f"taken to be {length}, {UNKNOWN_NOISE:.0%} of the wall: how much equal runs differ here is not known"


def says(one: Finding) -> str:
    """The finding, and what it would save at most."""
    most, least = text.seconds(one.saves_ns), text.seconds(one.lo_ns)
    sure = "" if least == most else f", by the boundaries' uncertainty {least}"
    return f"{one.says} Without it the wall is shorter by at most {most} s{sure}."


def split(run: Run) -> tuple[list[Finding], list[Finding]]:
    """Those above noise, and those below."""
    return [one for one in run.findings if one.above_noise], [one for one in run.findings if not one.above_noise]
