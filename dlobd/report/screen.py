"""A run on one screen: verdict, where the time went, what would lower it, what to beware of, and where to read on.

At most `LINES` lines of 79 columns; what does not fit is counted, and `dlobd show --full` has it. The figures are those
of `dlobd.report.summary`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from dlobd.layers import LAYERS
from dlobd.record.run import Run
from dlobd.report import findings, text
from dlobd.report.summary import Part, Summary, settings, summary
from dlobd.report.terminal import verdict
from dlobd.report.transport import in_one_line

LINES = 36
"""With the hash, the bundle's path and a prompt below it fits 40 lines."""

BAR = 30
MOST_FINDINGS = 3
MOST_WARNINGS = 4

EXCHANGE = "exchange"
"""The plane whose transport people ask for first; the whole report has the others."""

Line = tuple[str, str]
"""Its text, and its style."""


def screen(run: Run, console: Console) -> None:
    """Prints it."""
    for words, style in lines(run, console.options.ascii_only):
        console.print(Text(words, style=style), width=text.WIDTH)


def lines(run: Run, ascii_only: bool = False) -> list[Line]:
    """All lines."""
    found = summary(run)
    head = [(f"run {run.run_id}  {run.experiment}  status {run.status}", "bold")]
    head += _wrapped(settings(run))[:4] + _wrapped(verdict(run), style="bold")[:5]
    for plane in run.transport or ():
        if plane.plane == EXCHANGE:
            head += _wrapped(f"gradients went by {in_one_line(plane)}")[:3]
    bars = list(_bars(found, ascii_only)) if run.wall_ns is not None else []
    tail = [("", ""), *_wrapped(_read_on(run))]
    warned = _warnings(found, LINES - len(head) - len(bars) - len(tail))
    left = LINES - len(head) - len(bars) - len(tail) - len(warned)
    return [*head, *warned, *bars, *_findings(run, left), *tail]


def _wrapped(words: str, indent: str = "", style: str = "") -> list[Line]:
    return [(line, style) for line in textwrap.wrap(words, text.WIDTH, subsequent_indent=indent)]


def _cut(words: str) -> str:
    return textwrap.shorten(words, text.WIDTH, placeholder=" ...")


def _warnings(found: Summary, room: int) -> list[Line]:
    """One line each, the first ones; failed checks come first."""
    every = [f"check failed: {check.message}" for check in found.failed]
    every += [f"warning: {words}" for words in found.not_sound]
    every += [f"check impossible: {check.message}" for check in found.undecided]
    most = max(1, min(MOST_WARNINGS, room // 3))
    shown = [(_cut(words), "yellow") for words in every[:most]]
    more = len(every) - len(shown)
    return [*shown, *([(f"and {more} more: dlobd show --full", "yellow")] if more else [])]


def _bars(found: Summary, ascii_only: bool) -> Iterator[Line]:
    """A line a layer; what is not explained is hatched, and what lies between marks is drawn lighter."""
    full, between, hatched = ("#", "-", "/") if ascii_only else ("█", "▒", "░")
    rest = found.unattributed
    parts = [*found.parts, *([rest] if rest and rest.ns else [])]
    longest_ns = max([part.ns for part in parts] + [1])
    yield "", ""
    shades = f"{full} measured or named wait, {between} between marks, {hatched} not explained"
    yield f"Seconds of the wall: {shades}", "bold"
    for part in parts:
        number = f"< {text.seconds(part.hi_ns)}" if part.below_resolution else text.seconds(part.ns)
        bar = _bar(part, longest_ns, (full, between, hatched))
        colour = LAYERS[part.layer].colour if part.layer in LAYERS else ""
        yield f"{part.title:<14} {number:>10} {text.percent(part.share):>5} %  {bar}", colour
    yield f"{'wall':<14} {text.seconds(found.wall_ns or 0):>10}          {found.window}", ""


def _bar(part: Part, longest_ns: int, marks: tuple[str, str, str]) -> str:
    """What is there shows, however little it is, from a millisecond on."""
    unknown_ns = part.unexplained_ns
    between_ns = min(part.between_marks_ns, part.ns - unknown_ns)
    lengths = (part.ns - unknown_ns - between_ns, between_ns, unknown_ns)
    return "".join(
        mark * max(round(BAR * ns / longest_ns), 1 if ns >= 1_000_000 else 0)
        for mark, ns in zip(marks, lengths, strict=True)
    )


def _findings(run: Run, room: int) -> list[Line]:
    """As many as there is room for, with the setting that lowers each."""
    if run.wall_ns is None:
        return []
    above, below = findings.split(run)
    shown: list[Line] = [("", ""), (findings.TITLE, "bold")]
    if not above:
        shown += _wrapped(findings.none(run))
    for number, one in enumerate((above or below)[:MOST_FINDINGS], 1):
        block = _wrapped(f"{number}. {findings.says(one)}", "   ")
        block += _wrapped(f"   to lower it: {one.remedy}", "   ")
        if len(shown) + len(block) + 1 > room and number > 1:
            break
        shown += block
    told = sum(words[:2] in ("1.", "2.", "3.") for words, _ in shown)
    more = len(above) + len(below) - told
    if more and len(shown) < room:
        few = "all" if len(below) == more else str(len(below))
        small = f", {few} of them below noise" if above and below else ""
        shown.append((f"{more} more{small}: dlobd show --view findings", ""))
    return shown[: max(room, 2)]


def _read_on(run: Run) -> str:
    page = f"dlobd report {run.run_id} -o report.html"
    return f"All of it: dlobd show {run.run_id} --full. The page: {page}. Words: docs/concepts.md"
