"""Count false alarms of `dlobd micro --compare`, and write docs/micro.md: python -m bench.micro_alarms [--pairs N].

Both sides of a pair are the same channel: loopback without, and with the name of its interface. Their launches are
interleaved, as those of any comparison. A false alarm is a verdict faster or slower at any point. Rerun the command to
resume.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from bench import command, publish
from bench.false_alarms import Count
from dlobd.micro import estimates, results, study
from dlobd.micro.hosts import HERE
from dlobd.micro.launch import Plan
from dlobd.micro.payload import payload
from dlobd.micro.plan import Point, Route
from dlobd.run.progress import Progress

NAME = "micro-alarms"
PAGE = "micro.md"
SIDES = Route("tcp", "sockets"), Route("tcp@lo", "sockets")
LAUNCHES = 7  # of each side: the fewest that can differ at two points
POINTS = (Point("latency", payload("4K"), 0.1), Point("bandwidth", payload("1M"), 0.1))


def main() -> int:
    """Run the command; return the exit code."""
    parser = command.parser(NAME, __doc__)
    parser.add_argument("--pairs", type=int, default=200, help="comparisons")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: Namespace, progress: Progress) -> list[Path]:
    def alarmed(number: int) -> bool:
        progress(f"pair {number + 1} of {asked.pairs}")
        return pair()

    found = command.repeated(asked.out / "pairs.json", asked.pairs, alarmed)
    publish.page(asked.docs / PAGE, NAME, publish.machine([])[:1], [text(Count(sum(found), len(found)))])
    return [asked.docs / PAGE]


def pair() -> bool:
    """Measure and compare both sides; return True for a false alarm. Raises SetupError: a launch failed."""
    plans = [(Plan(route, POINTS, pins=True), (HERE, HERE)) for route in SIDES]
    found = command.completed(study.run(results.empty("", results.THIS, 2), plans, LAUNCHES, lambda _: None))
    compared = estimates.compare(found, *SIDES)
    return any(one.verdict in ("faster", "slower") for one in compared.values())


def text(alarms: Count) -> str:
    """Return the sentence of the page."""
    points = " and ".join(f"{point.benchmark} at {point.payload.name}" for point in POINTS)
    return (
        f"**A/A.** {alarms.of} comparisons of a channel with itself, {LAUNCHES} launches of each side, interleaved: "
        f"{points} over loopback. False alarms: {alarms.found}, {alarms.share:.1%}; at most {alarms.at_most:.1%} with "
        "95 % confidence. The test permits 5 %."
    )


if __name__ == "__main__":
    sys.exit(main())
