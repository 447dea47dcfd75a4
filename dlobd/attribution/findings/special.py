"""Remedies that are no matter of spans of one name: stragglers, short steps, a cold start, a busy machine."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

from dlobd.attribution.environment_cache import in_memory, not_warm
from dlobd.attribution.findings.base import Case, Draft, Remedy, taken
from dlobd.attribution.findings.rules import Rule, S
from dlobd.schema import Experiment, Span
from dlobd.tracing import names

SHORT_STEP_NS = 10_000_000
"""Of shorter steps a good part is what a step costs however few samples it has: a call into TensorFlow, and messages
of all ranks in each collective."""

SMALL_BATCH = 32
"""Samples a worker: from there on the batch is a matter of training, and none of overhead."""

LARGER = 10
"""So much larger a batch is what the bound of short steps assumes, and that a step is as long as before."""

MOST = Fraction(2, 3)
"""A rank that is the last in less than that of the lost time is no straggler: ranks take turns."""

MUCH_LONGER = 3
"""Times the median of its kind."""

PAUSES = (names.CHECKPOINT, names.EVALUATE, names.SAVE_MODEL)
"""What the chief does while the others wait for it."""

IN_STEP = (names.STEP, names.FORWARD_AND_BACKWARD, names.APPLY, names.EXCHANGE, names.PACK, names.WAIT_FOR_PEERS,
           names.WIRE, names.UNPACK, names.PUSH, names.PULL, names.AGREE)  # fmt: skip

COLD = Rule(
    "cold-start", "tensorflow", "Python's packages were imported, and their files were not in memory",
    (("tensorflow", names.IMPORT_TENSORFLOW), ("spark", names.IMPORT_PYSPARK), ("spark", "import *"),
     ("launcher", names.IMPORT_TENSORFLOWONSPARK), ("launcher", names.IMPORT_DISTRIBUTOR)),
    "run it once more: the page cache of each node is warm then; or an environment on a faster disk, and nodes with "
    "memory to keep it",
    "the next run is as slow: then it is not the disk",
    at_least_ns=5 * S // 2,
)  # fmt: skip
"""2.5 s is what the same import of TensorFlow took with its files in memory, where it had taken 25 s without."""


def checkpoints(case: Case) -> Draft | None:
    """What checkpoints take by their number: of one much longer than the others, the rest is another cause's."""
    every = [span for span in case.trace.spans if span.name == names.CHECKPOINT and span.layer == "tensorflow"]
    usual_ns = round(statistics.median(span.end_ns - span.start_ns for span in every)) if every else 0

    def around(span: Span) -> Span | None:
        return next((one for one in case.spans_around(span) if one.name == names.CHECKPOINT), None)

    def kept(span: Span, waited: bool) -> Fraction | int:
        one = around(span)
        length_ns = one.end_ns - one.start_ns if one else 0
        return Fraction(max(0, length_ns - MUCH_LONGER * usual_ns), length_ns) if length_ns > 0 else 1

    found = taken(case, lambda span, waited: around(span) is not None)
    if not found.ns:
        return None
    return Draft(
        "checkpoints", "tensorflow",
        f"Training stood still for {len(every)} checkpoints, half of them within {usual_ns / 1e9:.3f} s: "
        f"{case.share(found.ns)}.",
        found.ns, found.evidence, "checkpoint_every_steps: fewer of them",
        "each is so long because HDFS was slow: then hdfs-data, name-node or close-retry says so too",
        kept=kept, uncertain_ns=found.uncertain_ns,
    )  # fmt: skip


def cold_start(case: Case) -> Draft | None:
    """Imports of a run whose environment was not in memory."""
    cache = case.environment_cache
    if cache is None or cache.state not in ("cold", "partly") or (draft := COLD(case)) is None:
        return None
    parts = (f"{part.part}: {in_memory(part)} were in memory" for part in not_warm(cache))
    return replace(draft, evidence=(*draft.evidence, *parts))


def straggler(case: Case) -> Draft | None:
    """One rank that the others wait for: in start-up, or step after step.

    Without it the next to last rank is the last: of each collective that is what it costs, but for what that rank does
    for all: checkpoints and evaluations, which are findings of their own."""
    groups = case.what_if.members
    pauses = [span for span in case.trace.spans if span.name in PAUSES]
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
    host = next(span.process.host for span in case.trace.spans if span.lane == lane)
    return Draft(
        "straggler", "tensorflow", f"The other ranks waited for {lane}: {case.share(ns)}.", ns,
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


def short_steps(case: Case) -> Draft | None:
    """Many steps of few samples, each so short that most of it is not computing."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for span in case.trace.spans:
        if span.layer == "tensorflow" and span.name == names.STEP and span.call:
            lengths[span.lane].append(span.end_ns - span.start_ns)
    medians = [statistics.median(each) for each in lengths.values()]
    if not isinstance(case.chosen, Experiment) or case.chosen.batch_size >= SMALL_BATCH:
        return None
    if not medians or max(medians) > SHORT_STEP_NS:
        return None

    def wanted(span: Span, waited: bool) -> bool:
        return not waited and span.layer in ("tensorflow", "channel") and span.name in IN_STEP

    found = taken(case, wanted)
    if not found.ns:
        return None
    count, now = max(map(len, lengths.values())), case.chosen.batch_size
    return Draft(
        "short-steps", "tensorflow",
        f"{count} steps, half of them shorter than {max(medians) / 1e6:.2f} ms: {case.share(found.ns)}.",
        found.ns, found.evidence,
        f"batch_size = {LARGER * now} instead of {now}, with a learning rate to match",
        "accuracy is worse with fewer steps; or a step takes as much longer as it has more samples",
        kept=lambda span, waited: Fraction(1, LARGER) if wanted(span, waited) else 1, uncertain_ns=found.uncertain_ns,
    )  # fmt: skip


def contention(case: Case) -> Draft | None:
    """Cores that other processes of the machine had, while the run waited for one."""
    waits = case.core_waits
    if waits is None or not waits.held_up_ns:
        return None
    whole, held_up_ns = waits.whole, waits.held_up_ns
    return Draft(
        "contention", "client",
        f"The run waited for cores that other processes had: {case.share(held_up_ns)}.", held_up_ns,
        (f"other processes used {(waits.foreign_cpu_ns or 0) / 1e9:.1f} s of CPU (/proc, sampled)",
         f"the wall's threads waited for a core: {whole.waiting_ns / 1e9:.3f} s, at least "  # noqa: ISC004
         f"{whole.waiting_lo_ns / 1e9:.3f} (schedstat)"),
        "end what else runs on these nodes, or keep it off the cores of YARN's containers (cgroups: "
        "yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage)",
        "the other processes are the user's own job's, started by it outside of YARN's sight",
        saves_ns=held_up_ns, uncertain_ns=max(0, whole.waiting_ns - whole.waiting_lo_ns),
    )  # fmt: skip


SPECIAL: dict[str, Remedy] = {
    "checkpoints": checkpoints,
    "cold-start": cold_start,
    "straggler": straggler,
    "short-steps": short_steps,
    "contention": contention,
}
"""Name to remedy."""
