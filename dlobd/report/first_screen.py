"""First screen of a run: the facts that terminal and page show, in their order, without layout, and its words.

Times are formatted in tenths of a second. The rounded parts of a bar sum to the rounded wall time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlobd.layers import LAYERS, UNATTRIBUTED, title
from dlobd.record.run import Finding, Run
from dlobd.report import sentences, text
from dlobd.report.summary import facts, not_sound, settings

TENTH_NS = 10**8
"""Resolution of the seconds; repeated runs differ by more."""

MINOR_SHARE = 0.02
"""Layers with a smaller fraction of the wall time are summed as `OTHER`."""

OTHER = "other"

WORDS: dict[str, str] = {
    "application": "YARN application of the run: the ID that YARN and Spark's history server use",
    "busy machine": "a machine on which other processes delayed the run for more than 2 % of its wall time",
    "check": "comparison of one quantity from two independent sources",
    "evidence": "logs, marks and counters from which the figures follow; the bundle has all of them",
    "exchange": "averaging of the gradients of all workers after each step",
    "executors": "worker processes of Spark, each in its own container of YARN",
    "experiment": "named configuration of a run",
    "finding": "cause of lost time in a run, with the setting that reduces this time, and bounds of the saving",
    "inferred": "quality of evidence: two events enclose the time, without evidence in between; also `between marks`",
    "known wait": "quality of evidence: a configured heartbeat, poll or sleep explains the wait; also `named wait`",
    "launcher": "component that starts and stops the training processes on Spark's executors",
    "layer": "part of the stack to which time is attributed. Each nanosecond belongs to exactly one layer",
    "lost work": "task attempts of Spark whose results were not used. Their time is wall time only if a job waited",
    "measured": "quality of evidence: a source shows begin and end of one call or phase",
    "model": "neural network that the run trained, and its data set",
    "noise": "differences between the wall times of equal runs on the same machine",
    "other": "sum of the layers below 2 % of the wall time",
    "overhead": "wall time minus training",
    "phase": "start-up, training (or Spark jobs) and teardown follow each other; they sum to the wall time",
    "possible saving": "lower and upper bound of the largest finding above noise. Savings overlap; do not add them up",
    "remedy": "change of a setting that saves the time of a finding",
    "scheduler": "component that starts the processes of the job: YARN, or Spark's own Master",
    "script": "your own Python script, which ran unchanged",
    "Spark jobs": "phase from the start of the first Spark job to the end of the last, in a run without training steps",
    "start-up": "phase from the start of spark-submit to the first training step or Spark job",
    "status": "`ok`: the job succeeded and no check failed. `invalid`: the job succeeded, but a check failed. "
    "`failed`: the job failed or timed out. `interrupted`: the user or the system ended it",
    "teardown": "phase from the last training step or Spark job to the exit of spark-submit",
    "tracking URL": "page of the application at the ResourceManager, while the cluster is up",
    "training": "phase from the first batch to the last step of any worker, with its waits for input",
    "unattributed": "wall time in which no layer was active, as far as the evidence shows",
    "unexplained": "wall time without sufficient evidence: unattributed time, and waits without a known cause",
    "verdict": "result of a check (`pass`, `fail`, `unknown`) or of a comparison (`faster`, `slower`, `equivalent`, "
    "`inconclusive`)",
    "wall time": "time from just before the start of spark-submit to its exit",
    "workers": "training processes of the job",
}
"""Meaning of each word of the first screen, in alphabetical order, for the view `words`, the page and docs/concepts.md.
A layer's title is a word, too: see `layer_words`."""

BEGINNINGS = {
    "running": "The run has not finished",
    "failed": "The run failed",
    "interrupted": "The run was interrupted",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a bar: a layer, OTHER, the unattributed time, or a phase. `name` is the key, `colour` may be empty."""

    name: str
    title: str
    ns: int
    share: float
    seconds: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """Key figure: its word of the glossary, its value with unit, and a detail."""

    word: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """Failure of a run. `facts`: phase, line of the script and cause by name, as far as known."""

    reason: str
    facts: dict[str, str] = field(default_factory=dict)
    traceback: tuple[str, ...] = ()
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """Facts of the first screen, in the order of the fields. A field without facts is empty.

    subtitle: pairs of label and value; a value that begins with http is a link.
    failure: None for a run with status ok.
    layers: layers by size, then OTHER and the unattributed time; parts without time are omitted.
    findings: only those above noise; `no_finding` is the grey line that replaces them.
    disclosures: titles and sentences of details that are closed at first.
    """

    headline: str
    subtitle: tuple[tuple[str, str], ...]
    failure: Broken | None
    layers: tuple[Part, ...] = ()
    phases: tuple[Part, ...] = ()
    lost_work: str = ""
    tiles: tuple[Tile, ...] = ()
    findings: tuple[Finding, ...] = ()
    no_finding: str = ""
    warnings: tuple[str, ...] = ()
    disclosures: dict[str, tuple[str, ...]] = field(default_factory=dict)


def layer_words() -> dict[str, str]:
    """Return the meaning of each layer's title: begin and end of its time."""
    return {row.title: f"layer. Begins: {row.opens}. Ends: {row.closes}" for row in LAYERS.values()}


def first_screen(run: Run, bundle: str = "") -> FirstScreen:
    """Collect the facts of a run's first screen. `bundle`: path of the bundle for a command line, if it has one."""
    layers = _layers(run)
    headline, failure = _headline(run, layers), None if run.status == "ok" else _broken(run, bundle)
    if run.failure and run.failure.no_spark:
        return FirstScreen(headline, tuple(facts(run)), failure)
    ok = run.status == "ok" and bool(run.wall_ns)
    above = tuple(row for row in run.findings if row.above_noise) if ok else ()
    soft = (f"{plane.plane}: {sentences.transport(plane)}" for plane in run.transport or () if plane.soft)
    failed = (f"check failed: {check.message}" for check in run.checks if check.verdict == "fail")
    return FirstScreen(
        headline=headline,
        subtitle=(*facts(run), *_applications(run)),
        failure=failure,
        layers=layers,
        phases=_bar([(row.phase, row.phase, row.ns, "") for row in run.phases], run.wall_ns or 0),
        lost_work=sentences.lost_work(run.lost_work),
        tiles=_tiles(run, above) if run.wall_ns else (),
        findings=above,
        no_finding=sentences.no_finding(run) if ok and not above else "",
        warnings=(*failed, *soft, *not_sound(run)),
        disclosures=_disclosures(run),
    )


# ---- parts of the wall time


def _layers(run: Run) -> tuple[Part, ...]:
    """Build the bar of layers: the largest first, then the sum of the small ones, then the unattributed time."""
    wall_ns = run.wall_ns or 0
    small = [row for row in run.layers if row.ns < max(MINOR_SHARE * wall_ns, TENTH_NS)]
    large = sorted((row for row in run.layers if row not in small), key=lambda row: -row.ns)
    rows = [(row.layer, title(row.layer), row.ns, LAYERS[row.layer].colour) for row in large]
    rows.append((OTHER, OTHER, sum(row.ns for row in small), ""))
    rows.append((UNATTRIBUTED, UNATTRIBUTED, run.unattributed_ns or 0, ""))
    return _bar(rows, wall_ns)


def _bar(rows: Sequence[tuple[str, str, int, str]], wall_ns: int) -> tuple[Part, ...]:
    """Build the parts with at least a tenth of a second."""
    rounded = tenths(wall_ns, [row[2] for row in rows])
    return tuple(
        Part(name, shown, ns, ns / wall_ns, f"{part // 10}.{part % 10}", colour)
        for (name, shown, ns, colour), part in zip(rows, rounded, strict=True)
        if part
    )


def tenths(wall_ns: int, parts_ns: Sequence[int]) -> list[int]:
    """Round parts to tenths of a second, so that the rounded parts sum to the rounded wall time.
    Hamilton's method: round each part down, then give the missing tenths to the parts with the largest remainders."""
    total = (wall_ns + TENTH_NS // 2) // TENTH_NS
    rounded = [ns // TENTH_NS for ns in parts_ns]
    by_remainder = sorted(range(len(parts_ns)), key=lambda i: -(parts_ns[i] % TENTH_NS))
    for i in by_remainder[: max(total - sum(rounded), 0)]:
        rounded[i] += 1
    return rounded


def _headline(run: Run, layers: Sequence[Part]) -> str:
    """Format the result: "The run took 34.0 s: Spark 18.4 s (54 %), TensorFlow 8.6 s, other 0.5 s; ..."."""
    length = f"{(run.wall_ns or 0) / 1e9:.1f} s"
    if run.status != "ok":
        beginning = BEGINNINGS.get(run.status, f"The run is {run.status}")
        by = f" (pid {run.process.pid} on {run.process.domain.partition('/')[0]})" if run.process else ""
        return f"{beginning}{by} after {length}." if run.wall_ns else f"{beginning}{by}."
    if not run.wall_ns:
        return "Nothing was measured."
    words = [f"{part.title} {part.seconds} s" for part in layers]
    if layers:
        words[0] += f" ({text.percentage(layers[0].share)})"
    training = f"; training took {run.training_ns / 1e9:.1f} s" if run.training_ns is not None else ""
    return f"The run took {length}: {', '.join(words)}{training}."


# ---- the other facts


def _applications(run: Run) -> list[tuple[str, str]]:
    found = []
    for one in run.applications:
        found.append(("application", one.application_id))
        if one.tracking_url:
            found.append(("tracking URL", one.tracking_url))
    return found


def _broken(run: Run, bundle: str) -> Broken:
    reason, found = run.reason or "the reason is unknown", run.failure
    if found is None:  # the run was never submitted, or an earlier dlobd wrote it
        return Broken(reason)
    facts = {
        "Phase": f"{found.phase or ''}{f' after {found.after}' if found.after else ''}",
        "Script": f"{found.file}:{found.line}" if found.file else "",
        "Java cause": found.java_cause or "",
    }
    log = f"{bundle}/{found.log}" if bundle else f"{found.log} in the bundle"
    next_step = found.next_step or (f"read {log}" if found.log else "")
    return Broken(reason, {name: fact for name, fact in facts.items() if fact}, found.traceback, next_step)


def _tiles(run: Run, above: Sequence[Finding]) -> tuple[Tile, ...]:
    wall_ns, training_ns = run.wall_ns or 0, run.training_ns
    length, unknown_ns = f"{wall_ns / 1e9:.1f} s", run.unexplained_ns
    work = next((row for row in run.phases if row.phase == "Spark jobs"), None)
    if training_ns is not None:
        overhead = f"overhead {(wall_ns - training_ns) / 1e9:.1f} s"
        share = text.percentage(training_ns / wall_ns)
        main = Tile("training", f"{training_ns / 1e9:.1f} s", f"{share}; {overhead}")
    elif work:
        main = Tile(work.phase, f"{work.ns / 1e9:.1f} s", text.percentage(work.ns / wall_ns))
    else:
        main = Tile("training", "unknown", "no training step was recorded")
    unexplained = Tile("unexplained", f"{unknown_ns / 1e9:.1f} s", text.percentage(unknown_ns / wall_ns))
    tiles = (Tile("wall time", length), main, unexplained)
    if run.status != "ok":
        return tiles
    if not above:
        return (*tiles, Tile("possible saving", "none", "no finding is above noise"))
    largest = max(above, key=lambda row: row.saves_ns)
    others = f"largest of {len(above)} findings; savings overlap" if len(above) > 1 else "1 finding"
    return (*tiles, Tile("possible saving", sentences.saving_range(largest), others))


def _disclosures(run: Run) -> dict[str, tuple[str, ...]]:
    exchange = (
        f"Gradient exchange: {sentences.transport(plane)}" for plane in run.transport or () if plane.plane == "exchange"
    )
    every = {
        "Quality of the evidence": tuple(filter(None, [sentences.evidence(run)])),
        "Checks, noise and caches": tuple(sentences.circumstances(run)),
        "Settings": (settings(run), *exchange),
    }
    return {title: lines for title, lines in every.items() if lines}
