"""Overview of a run: verdict, wall time by layer, findings, and warnings.

At most `LINES` lines of 79 columns. The overview counts the lines that do not fit; `dlobd show --full` prints them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from dlobd.layers import LAYERS
from dlobd.record.run import Run
from dlobd.report import sentences, text
from dlobd.report.headline import seconds, tenths_of_parts
from dlobd.report.summary import Part, Summary, settings, summary

LINES = 31
"""Maximum lines of the overview. With the lines and the prompt that follow it, the output fits 40 lines."""

BAR = 30
MOST_FINDINGS = 3
MOST_WARNINGS = 4

EXCHANGE = "exchange"
"""Plane of the gradients, the only plane in the overview."""

Line = tuple[str, str]
"""Text and style of a line."""


def overview(run: Run, console: Console) -> None:
    """Print the overview."""
    for words, style in lines(run, console.options.ascii_only):
        console.print(Text(words, style=style), width=text.WIDTH)


def lines(run: Run, ascii_only: bool = False) -> list[Line]:
    """Build all lines of the overview."""
    found = summary(run)
    head = [(f"run {run.run_id}  {run.experiment}  status {run.status}", "bold")]
    head += _wrapped(settings(run))[:4] + _wrapped(sentences.verdict(run), style="bold")[:5]
    for plane in run.transport or ():
        if plane.plane == EXCHANGE:
            head += _wrapped(f"Gradient exchange: {sentences.transport(plane)}")[:3]
    bars = list(_bars(run, found, ascii_only)) if run.wall_ns is not None else []
    warned = _warnings(found, LINES - len(head) - len(bars))
    return [*head, *warned, *bars, *_findings(run, LINES - len(head) - len(bars) - len(warned))]


def _wrapped(words: str, indent: str = "", style: str = "") -> list[Line]:
    return [(line, style) for line in textwrap.wrap(words, text.WIDTH, subsequent_indent=indent)]


def _warnings(found: Summary, room: int) -> list[Line]:
    """Return the first warnings that fit, failed checks first."""
    every = [f"check failed: {check.message}" for check in found.failed]
    every += [f"warning: {words}" for words in found.not_sound]
    every += [f"check undecided: {check.message}" for check in found.undecided]
    count = max(1, min(MOST_WARNINGS, room // 3))
    shown: list[str] = []
    for most in (3, 2, 1):
        wrapped = [textwrap.wrap(words, text.WIDTH, max_lines=most, placeholder=" ...") for words in every[:count]]
        shown = [line for block in wrapped for line in block]
        if len(shown) <= room // 2:
            break
    if (more := len(every) - count) > 0:
        shown.append(f"and {more} more: dlobd show --full")
    return [(line, "yellow") for line in shown]


def _bars(run: Run, found: Summary, ascii_only: bool) -> Iterator[Line]:
    """Draw one bar per layer: time between events is lighter, unexplained time is hatched."""
    full, between, hatched = ("#", "-", "/") if ascii_only else ("█", "▒", "░")
    rest = found.unattributed
    parts = [*found.parts, *([rest] if rest and rest.ns else [])]
    longest_ns = max([part.ns for part in parts] + [1])
    wall, tenths = tenths_of_parts(run)
    yield "", ""
    yield f"Seconds: {full} measured or known wait, {between} between marks, {hatched} unexplained", "bold"
    for part in parts:
        number = seconds(tenths[part.layer]) if tenths[part.layer] or not part.ns else "< 0.1"
        bar = _bar(part, longest_ns, (full, between, hatched))
        colour = LAYERS[part.layer].colour if part.layer in LAYERS else ""
        yield f"{part.title:<14} {number:>8} {100 * part.share:>4.0f} %  {bar}", colour
    yield f"{'wall':<14} {seconds(wall):>8}         {found.window}", ""
    if run.lost_work:
        known = [row.ns for row in run.lost_work if row.ns is not None]
        number = f"{sum(known) / 1e9:.1f}" if len(known) == len(run.lost_work) else "unknown"
        attempts = sum(row.attempts for row in run.lost_work)
        yield f"{'lost work':<14} {number:>8}         {attempts} task attempts without a used result", "yellow"


def _bar(part: Part, longest_ns: int, marks: tuple[str, str, str]) -> str:
    """Draw a bar in which each quality of evidence of 1 ms or more is visible."""
    unknown_ns = part.unexplained_ns
    between_ns = min(part.between_marks_ns, part.ns - unknown_ns)
    lengths = (part.ns - unknown_ns - between_ns, between_ns, unknown_ns)
    return "".join(
        mark * max(round(BAR * ns / longest_ns), 1 if ns >= 1_000_000 else 0)
        for mark, ns in zip(marks, lengths, strict=True)
    )


def _findings(run: Run, room: int) -> list[Line]:
    """Return the findings that fit, each with its remedy."""
    if run.wall_ns is None:
        return []
    above = [row for row in run.findings if row.above_noise]
    shown: list[Line] = [("", ""), (sentences.FINDINGS_TITLE, "bold")]
    if not above:
        shown += _wrapped(sentences.no_finding(run))
    count = 0
    for row in (above or run.findings)[:MOST_FINDINGS]:
        block = _wrapped(f"{count + 1}. {sentences.finding(row)}", "   ")
        block += _wrapped(f"   Remedy: {row.remedy}", "   ")
        if count and len(shown) + len(block) + 1 > room:
            break
        shown += block
        count += 1
    more = len(run.findings) - count
    if more and len(shown) < room:
        below = len(run.findings) - len(above)
        small = f", {'all' if below == more else below} of them below noise" if above and below else ""
        shown.append((f"{more} more{small}: dlobd show --view findings", ""))
    return shown[: max(room, 2)]
