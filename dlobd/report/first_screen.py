"""First screen of a run: the facts that terminal and page show, in their order, without layout.

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
