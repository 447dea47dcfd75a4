"""Rules that depend on more than the kind of a span: stragglers, short steps, a cold start, a busy machine."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

from dlobd.attribution.environment_cache import in_memory, not_warm
from dlobd.attribution.findings.base import Candidate, Context, Finder, wall_share
from dlobd.attribution.findings.rules import Rule, S
from dlobd.schema import Experiment, Span
from dlobd.spans import CHECKPOINT, STEP

SHORT_STEP_NS = 10_000_000
"""A good part of a shorter step does not depend on the number of samples: a call into TensorFlow, and the messages of
each collective."""

SMALL_BATCH = 32
"""Samples per worker. The size of a larger batch is a decision about training, not about overhead."""

LARGER = 10
"""Factor of the batch size that the bound of short steps assumes, with steps as long as before."""

MOST = Fraction(2, 3)
"""Share of the lost time from which on the last rank is a straggler; below it ranks take turns."""

MUCH_LONGER = 3
"""Length of an outlier, as a multiple of the median."""

COLD = Rule(
    "cold-start", "tensorflow", "Python's packages were imported, and their files were not in memory",
    "run it once more: the page cache of each node is warm then; or an environment on a faster disk, and nodes with "
    "memory to keep it",
    "the next run is as slow: then it is not the disk",
    at_least_ns=5 * S // 2,
)  # fmt: skip
"""The same import of TensorFlow took 2.5 s with its files in memory, and 25 s without."""


def checkpoints(context: Context) -> Candidate | None:
    """Finds time of checkpoints that a smaller number of them saves; the excess of an outlier has another cause."""
    every = [span for span in context.trace.spans if span.kind is CHECKPOINT]
    usual_ns = round(statistics.median(span.end_ns - span.start_ns for span in every)) if every else 0

    def around(span: Span) -> Span | None:
        return next((one for one in context.spans_around(span) if one.kind is CHECKPOINT), None)

    def retain(span: Span, waited: bool) -> Fraction | int:
        one = around(span)
        length_ns = one.end_ns - one.start_ns if one else 0
        return Fraction(max(0, length_ns - MUCH_LONGER * usual_ns), length_ns) if length_ns > 0 else 1

    found = wall_share(context, lambda span, waited: around(span) is not None)
    if not found.ns:
        return None
    return Candidate(
        "checkpoints", "tensorflow",
        f"Training stood still for {len(every)} checkpoints, half of them within {usual_ns / 1e9:.3f} s: "
        f"{context.share(found.ns)}.",
        found.ns, found.evidence, "checkpoint_every_steps: fewer of them",
        "each is so long because HDFS was slow: then hdfs-data, name-node or close-retry says so too",
        retain=retain, uncertain_ns=found.uncertain_ns,
    )  # fmt: skip


def cold_start(context: Context) -> Candidate | None:
    """Finds imports of a run whose environment was not in memory."""
    cache = context.environment_cache
    if cache is None or cache.state not in ("cold", "partly") or (candidate := COLD(context)) is None:
        return None
    parts = (f"{part.part}: {in_memory(part)} were in memory" for part in not_warm(cache))
    return replace(candidate, evidence=(*candidate.evidence, *parts))


def straggler(context: Context) -> Candidate | None:
    """Finds a rank that is the last in most collectives, in start-up or step after step.

    Without that rank the last but one is the last: the difference is the cost, without checkpoints and evaluations,
    which that rank does for all and which have findings of their own."""
    groups = context.what_if.members
    pauses = [span for span in context.trace.spans if span.kind.pauses_training]
    late: Counter[str] = Counter()
    times: Counter[str] = Counter()
    uncertain: Counter[str] = Counter()
    for group in groups.values():
        members = sorted(group, key=lambda member: member.start_ns)
        if len(members) > 1 and members[-1].lane != members[-2].lane:
            last = members[-1]
            between = (members[-2].start_ns, last.start_ns)
            paused_ns = sum(_overlap_ns(between, pause) for pause in pauses if pause.lane == last.lane)
            late[last.lane] += max(0, between[1] - between[0] - paused_ns)
            times[last.lane] += 1
            uncertain[last.lane] += last.resolution_ns
    if not late or not sum(late.values()):
        return None
    lane, ns = late.most_common(1)[0]
    if Fraction(ns, sum(late.values())) < MOST:
        return None
    host = next(span.process.host for span in context.trace.spans if span.lane == lane)
    return Candidate(
        "straggler", "tensorflow", f"The other ranks waited for {lane}: {context.share(ns)}.", ns,
        (
            f"{lane} on {host} was the last of all ranks at {times[lane]} of {len(groups)} collectives",
            f"by {ns / 1e9:.3f} of {sum(late.values()) / 1e9:.3f} s by which any rank was the last",
        ),
        f"the node of {lane}, {host}: its cores, disk and memory, and what else runs there; or an exchange in which "
        "nobody waits (exchange = \"ps-async\")",
        "it waited for its input, or has more samples than the others, or another one is late in the next run",
        saves_ns=ns, uncertain_ns=uncertain[lane],
    )  # fmt: skip


def _overlap_ns(between: tuple[int, int], span: Span) -> int:
    return max(0, min(between[1], span.end_ns) - max(between[0], span.start_ns))


def short_steps(context: Context) -> Candidate | None:
    """Finds many short steps of few samples, which mostly do not compute."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for span in context.trace.spans:
        if span.kind is STEP and span.call:
            lengths[span.lane].append(span.end_ns - span.start_ns)
    medians = [statistics.median(each) for each in lengths.values()]
    if not isinstance(context.chosen, Experiment) or context.chosen.batch_size >= SMALL_BATCH:
        return None
    if not medians or max(medians) > SHORT_STEP_NS:
        return None

    def wanted(span: Span, waited: bool) -> bool:
        return not waited and "short-steps" in span.kind.findings

    found = wall_share(context, wanted)
    if not found.ns:
        return None
    count, now = max(map(len, lengths.values())), context.chosen.batch_size
    return Candidate(
        "short-steps", "tensorflow",
        f"{count} steps, half of them shorter than {max(medians) / 1e6:.2f} ms: {context.share(found.ns)}.",
        found.ns, found.evidence,
        f"batch_size = {LARGER * now} instead of {now}, with a learning rate to match",
        "accuracy is worse with fewer steps; or a step takes as much longer as it has more samples",
        retain=lambda span, waited: Fraction(1, LARGER) if wanted(span, waited) else 1, uncertain_ns=found.uncertain_ns,
    )  # fmt: skip


def contention(context: Context) -> Candidate | None:
    """Finds waits for cores that other processes used."""
    waits = context.core_waits
    if waits is None or not waits.held_up_ns:
        return None
    whole, held_up_ns = waits.whole, waits.held_up_ns
    return Candidate(
        "contention", "client",
        f"The run waited for cores that other processes had: {context.share(held_up_ns)}.", held_up_ns,
        (f"other processes used {(waits.foreign_cpu_ns or 0) / 1e9:.1f} s of CPU (/proc, sampled)",
         f"the wall's threads waited for a core: {whole.waiting_ns / 1e9:.3f} s, at least "  # noqa: ISC004
         f"{whole.waiting_lo_ns / 1e9:.3f} (schedstat)"),
        "end what else runs on these nodes, or keep it off the cores of YARN's containers (cgroups: "
        "yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage)",
        "the other processes are the user's own job's, started by it outside of YARN's sight",
        saves_ns=held_up_ns, uncertain_ns=max(0, whole.waiting_ns - whole.waiting_lo_ns),
    )  # fmt: skip


SPECIAL: dict[str, Finder] = {
    "checkpoints": checkpoints,
    "cold-start": cold_start,
    "straggler": straggler,
    "short-steps": short_steps,
    "contention": contention,
}
"""Rules by the code of their finding."""
