"""Computes the findings of a run: applies every rule, bounds its saving by a replay, and compares it with noise.

The rules here depend on more than the kind of a span: stragglers, short steps, a cold start, a busy machine.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dlobd.attribution.trace import Columns
from dlobd.bundle import files, noise
from dlobd.columns import NONE, Covered, ends_of_runs
from dlobd.findings.base import Candidate, Context, Finder, WallShare, Wanted, duration, wall_share
from dlobd.findings.rules import RULES, Rule, S, on_yarn, training_without
from dlobd.measures.environment_cache import TENSORFLOW, in_memory, not_warm
from dlobd.record.run import Finding
from dlobd.schema import Experiment
from dlobd.spans import CHECKPOINT, STEP

SHORT_STEP_NS = 10_000_000
"""Threshold of a short step: fixed costs dominate it, such as the call into TensorFlow and messages of collectives."""

SMALL_BATCH = 32
"""Threshold of a small batch, in samples per worker. A larger batch is a decision about training, not about
overhead."""

WORTH_NS = 1_000_000
"""Smallest saving that is reported."""

LARGER = 10
"""Factor of the batch size in the bound of the finding short-steps, which assumes the same duration of a step."""

MOST = Fraction(2, 3)
"""Least fraction of the ranks' waiting time that a straggler causes. Below it, several ranks are late in turn."""

MUCH_LONGER = 3
"""Duration of an outlier, as a multiple of the median."""

COLD = Rule(
    "cold-start",
    "tensorflow",
    "Importing TensorFlow took {time}, because its files were not in the page cache. A warm import takes about 2.5 s.",
    "run it again with a warm page cache on each node; or put the environment on a faster disk, on nodes with free "
    "memory",
    "the next run is as slow; then the disk is not the cause",
    at_least_ns=5 * S // 2,
    keeps_core_waits=True,
)
"""The same import of TensorFlow took 2.5 s with its files in the page cache, and 25 s without."""


def checkpoints(context: Context) -> Candidate | None:
    """Find the time that fewer checkpoints would save. The excess duration of outliers has another cause, and is
    kept."""
    spans = context.trace.spans
    lengths_ns = spans.end_ns - spans.start_ns
    every = lengths_ns[spans.of_kinds(lambda kind: kind is CHECKPOINT)]
    usual_ns = round(float(np.median(every))) if len(every) else 0
    around = context.around(CHECKPOINT)
    length_ns = np.maximum(1, lengths_ns[around])
    kept_ns = np.maximum(0, length_ns - MUCH_LONGER * usual_ns)
    wanted = Wanted(around != NONE, around != NONE)
    share = wall_share(context, wanted)
    if not share.ns:
        return None
    count = "1 checkpoint" if len(every) == 1 else f"{len(every)} checkpoints"
    return Candidate(
        "checkpoints",
        "tensorflow",
        f"{count} stopped training for {context.time(share.ns)}, with a median of {duration(usual_ns)}.",
        share,
        "checkpoint less often: raise checkpoint_every_steps",
        "HDFS was slow; then see the findings hdfs-data, name-node and close-retry first",
        retain=wanted.retained(kept_ns, length_ns),
    )


def cold_start(context: Context) -> Candidate | None:
    """Find imports of TensorFlow with files that were not in the page cache; the files of other imports are not
    measured."""
    parts = not_warm(context.environment_cache) if context.environment_cache else ()
    cold = next((part for part in parts if part.part == TENSORFLOW), None)
    if cold is None or (candidate := COLD(context)) is None:
        return None
    line = f"{cold.part}: {in_memory(cold)} were in the page cache"
    return replace(candidate, share=replace(candidate.share, evidence=(*candidate.share.evidence, line)))


def straggler(context: Context) -> Candidate | None:
    """Find a rank that is the last in most collectives, in start-up or step after step.

    Its cost is the time from the entry of the second-to-last rank until its own. Its checkpoints and evaluations, which
    all ranks need, have separate findings and do not count."""
    late, times, uncertain, groups = _late(context.what_if.columns)
    if not late or not sum(late.values()):
        return None
    lane, ns = late.most_common(1)[0]
    if Fraction(ns, sum(late.values())) < MOST:
        return None
    host = next(origin.process.host for origin in context.trace.spans.origins if origin.lane == lane)
    evidence = (
        f"{lane} on {host} was the last of all ranks at {times[lane]} of {groups} collectives",
        f"{lane} caused {ns / 1e9:.3f} of the {sum(late.values()) / 1e9:.3f} s that ranks waited for the last rank",
    )
    return Candidate(
        "straggler",
        "tensorflow",
        f"The other ranks waited {context.time(ns)} for {lane}.",
        WallShare(ns, uncertain[lane], evidence),
        f"check cores, disk, memory and other processes of {host}, the node of {lane}",
        f"{lane} waited for its input or has more samples, or another rank is late in the next run",
        {'use an exchange without waits (exchange = "ps-async")': training_without(exchange="ps-async")},
    )


def _late(columns: Columns) -> tuple[Counter[str], Counter[str], Counter[str], int]:
    """Return by lane, for collectives in which it is the last: its lateness in nanoseconds, their number, and the
    uncertainty; and the number of all collectives."""
    spans = columns.spans
    rows = columns.members
    group = columns.group[rows]
    # the last two spans of each group, if they are in different lanes
    final = (group[1:] == group[:-1]) & ends_of_runs(group)[1:] & (columns.lane[rows[1:]] != columns.lane[rows[:-1]])
    before, last = rows[:-1][final], rows[1:][final]
    late_ns = columns.start_ns[last] - columns.start_ns[before]
    pauses = np.flatnonzero(spans.of_kinds(lambda kind: kind.pauses_training))
    late: Counter[str] = Counter()
    times: Counter[str] = Counter()
    uncertain: Counter[str] = Counter()
    for lane in np.unique(columns.lane[last]).tolist():
        here, name = columns.lane[last] == lane, columns.lanes[lane]
        own = pauses[columns.lane[pauses] == lane]
        until = Covered(columns.start_ns[own], columns.end_ns[own])
        paused_ns = until(columns.start_ns[last[here]]) - until(columns.start_ns[before[here]])
        late[name] = int(np.maximum(0, late_ns[here] - paused_ns).sum())
        times[name] = int(here.sum())
        uncertain[name] = int(columns.resolution_ns[last[here]].sum())
    return late, times, uncertain, int(group.max(initial=-1)) + 1


def short_steps(context: Context) -> Candidate | None:
    """Find many short steps with few samples, in which overhead dominates."""
    spans = context.trace.spans
    steps = np.flatnonzero(spans.of_kinds(lambda kind: kind is STEP) & (spans.call > 0))
    lengths = {
        lane: (spans.end_ns - spans.start_ns)[steps[spans.lane[steps] == lane]]
        for lane in np.unique(spans.lane[steps]).tolist()
    }
    medians = [float(np.median(lane)) for lane in lengths.values()]
    if not isinstance(context.chosen, Experiment) or context.chosen.batch_size >= SMALL_BATCH:
        return None
    if not medians or max(medians) > SHORT_STEP_NS:
        return None

    wanted = Wanted(spans.of_kinds(lambda kind: "short-steps" in kind.findings), np.zeros(len(spans), np.bool_))
    share = wall_share(context, wanted)
    if not share.ns:
        return None
    count, batch_size = max(map(len, lengths.values())), context.chosen.batch_size
    return Candidate(
        "short-steps",
        "tensorflow",
        f"{count} steps with a median of {max(medians) / 1e6:.2f} ms took {context.time(share.ns)}.",
        share,
        f"use batch_size = {LARGER * batch_size} instead of {batch_size}, and adapt the learning rate",
        "accuracy falls with fewer steps, or steps of a larger batch take proportionally longer",
        retain=wanted.retained(1, LARGER),
    )


def contention(context: Context) -> Candidate | None:
    """Find waits for cores that other processes used."""
    waits = context.core_waits
    if waits is None or not waits.held_up_ns:
        return None
    whole, held_up_ns = waits.whole, waits.held_up_ns
    evidence = (
        f"other processes used {(waits.foreign_cpu_ns or 0) / 1e9:.1f} s of CPU time (/proc, sampled)",
        f"schedstat: {whole.waiting_ns / 1e9:.1f} s waiting for cores, at least {whole.waiting_lo_ns / 1e9:.1f} s",
    )
    return Candidate(
        "contention",
        "client",
        f"Other processes on the machine kept this run waiting for cores for {context.time(held_up_ns)}.",
        WallShare(held_up_ns, max(0, whole.waiting_ns - whole.waiting_lo_ns), evidence),
        "stop other work on these nodes",
        "those processes belong to your job, but are no children of its processes",
        {
            "limit the CPU of other YARN containers with cgroups "
            "(yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage=true)": on_yarn
        },
    )


FINDERS: dict[str, Finder] = {
    **{rule.finding: rule for rule in RULES},
    "checkpoints": checkpoints,
    "cold-start": cold_start,
    "straggler": straggler,
    "short-steps": short_steps,
    "contention": contention,
}
"""Code of a finding -> its rule; docs/findings.md has a section per finding."""


def findings(context: Context) -> list[Finding]:
    """Return the findings: findings above noise first, and larger savings before smaller savings."""
    measured = context.evidence.document(files.NOISE)
    earlier_walls_ns = (measured.get("earlier_walls_ns") if measured else None) or ()
    assumed = (measured.get("assumed") if measured else None) or noise.UNKNOWN_NOISE
    noise_ns = noise.noise_ns(earlier_walls_ns, context.trace.wall_ns, assumed)
    rows = []
    for finder in FINDERS.values():
        if (found := finder(context)) is None:
            continue
        advice = [text for text, helps in found.advice.items() if helps(context)]
        if not (remedy := "; or ".join(filter(None, [found.remedy, *advice]))):
            continue
        share = found.share
        most_ns = min(share.ns, context.trace.wall_ns)
        saves_ns = most_ns if found.retain is None else context.what_if.saved_ns(found.retain)
        lo_ns = saves_ns - share.uncertain_ns
        if saves_ns >= WORTH_NS and lo_ns > 0:
            saving = saves_ns, lo_ns, lo_ns > noise_ns
            about = found.finding, found.layer, found.says, share.ns
            rows.append(Finding(*about, *saving, share.evidence, remedy, found.unless))
    return sorted(rows, key=lambda row: (not row.above_noise, -row.saves_ns, row.finding))
