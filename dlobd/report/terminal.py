"""The terminal report: where the wall time went, and what happened from submit to first step and back.

It fits 80 columns and needs no colour to be read. Seconds come first, percent second, and the window is named. Time
that is not explained is hatched. The figures are those of `dlobd.report.summary`.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlobd.layers import LAYERS
from dlobd.record.resources import EnvironmentCache, PageCache
from dlobd.record.run import RecordingCost, Run
from dlobd.report import core_waits, resources, text
from dlobd.report.headline import headline
from dlobd.report.imports import imports
from dlobd.report.noise import run_line
from dlobd.report.summary import (
    SAMPLES_FOR_P99,
    Length,
    Part,
    Summary,
    machine_of,
    metrics,
    settings,
    slowest_rank,
    summary,
    title,
)
from dlobd.report.transport import transport
from dlobd.run.machine_noise import ALL
from dlobd.schema import Event

BAR = 20


def breakdown(run: Run, console: Console) -> None:
    """Prints the verdict, the wall split by layer, and what the split does not show."""
    found = summary(run)
    text.line(console, f"run {run.run_id}  {run.experiment}  status {run.status}", "bold")
    text.line(console, settings(run))
    text.line(console, verdict(run), "bold")
    for warning in found.not_sound:
        text.line(console, f"warning: {warning}", "yellow")
    for said in circumstances(run, found):
        text.line(console, said)
    if run.wall_ns is None:
        text.line(console, "No breakdown: the run has no window, so there is no wall time to split.")
        return
    text.heading(console, f"Where the wall time went ({found.window})")
    console.print(_layers(found, console))
    for said in _sums(found):
        text.line(console, said)
    _degrees(found, console)
    core_waits.by_layer(run, console)
    heading = "Named causes, contained in the layers above; length [read] or [default]"
    text.rows(console, heading, _lengths(found.causes))
    text.rows(console, "The largest parts", _lengths(found.largest))
    text.rows(console, "Hidden inside another layer, known only as an interval", _hidden(found))
    text.rows(
        console,
        "Not measured",
        [
            # where nothing contains a layer, it took no part in the run
            (title(n.layer), f"inside {title(n.inside)}: {n.why}" if n.inside else n.why)
            for n in run.not_measured
        ],
    )
    _hdfs(run, console)
    _ranks(run, console)
    transport(run, console)
    text.rows(console, "Corrections made to the evidence", _corrections(found))
    text.rows(console, "Metrics", _metrics(run))
    if run.overhead:
        text.line(console, "\n" + recording(run.overhead))
    if run.resources:
        text.line(console, resources.in_one_line(run.resources))
    outside = [(key.removesuffix("_ns"), text.seconds(ns)) for key, ns in run.setup.items() if ns is not None]
    text.rows(console, "Outside the window, seconds", outside)


def anatomy(run: Run, console: Console) -> None:
    """Prints the events of start-up and teardown in the order in which they happened, and what Python imported."""
    for heading, events in (("Start-up", run.startup), ("Teardown", run.teardown)):
        if not events:
            text.line(console, f"\n{heading}: no event was recorded.")
            continue
        start_ns = run.window.start_ns if run.window else events[0].at_ns
        since = run.window.name.partition(" -> ")[0] if run.window else "the first event"
        text.heading(console, f"{heading}: seconds since {since}")
        table = text.table(("seconds", "right", 9), ("+", "right", 10), ("event", "left", 24), ("source", "left", 14),
                       ("known to", "right", 8), ("clock", "left", 9))  # fmt: skip
        before = None
        for event in events:
            row = text.seconds(event.at_ns - start_ns), _delta(before, event), event.event, event.source
            text.row(table, *row, text.short(event.resolution_ns), event.clock)
            before = event
        console.print(table)
    imports(run.imports, console)


def verdict(run: Run) -> str:
    """Return the run's headline, and how well its seconds are known."""
    found = summary(run)
    sentence = headline(run)
    if run.status != "ok" or not found.wall_ns or not found.parts:
        return sentence
    return f"{sentence} {_evidence(found)}"


def _evidence(found: Summary) -> str:
    """Return how well the seconds of the wall are known, in percent of it."""
    unknown = f"{text.seconds(found.unknown_ns)} s ({text.percent(found.unknown_share)} %) not explained"
    shares = (found.seen.measured_ns, found.seen.named_wait_ns, found.seen.between_marks_ns)
    measured, waits, between = (text.percent(found.share(ns)) for ns in shares)
    return f"Evidence: {measured} % measured, {waits} % named waits, {between} % between two events, {unknown}."


def recording(overhead: RecordingCost) -> str:
    """One sentence: what dlobd itself cost; estimates are spans times what one costs."""
    if overhead.recording == "off":
        return "recording: off"
    lost = f", {overhead.lost_lines:,} lines lost" if overhead.lost_lines else ""
    if overhead.span_cost_ns is None or overhead.chain_ns is None:
        return f"recording: {overhead.spans:,} spans{lost}; what they cost is unknown"
    parts = [f"{_cost(overhead.chain_ns, overhead.chain_share)} of the wall"]
    if (loop := overhead.loop) and loop.ns is not None:
        parts.append(f"{_cost(loop.ns, loop.share)} of the {text.seconds(loop.length_ns)} s loop of {loop.rank}")
    if overhead.flush_cpu_ns is not None:
        parts.append(f"{overhead.flush_cpu_ns / 1e9:.4f} s of CPU for writing in all processes")
    each = f"{overhead.spans:,} spans x {overhead.span_cost_ns / 1e3:.1f} us{lost}"
    return f"recording: {each}; about {', '.join(parts)}"


def _cost(ns: int, share: float | None) -> str:
    return f"{ns / 1e9:.4f} s" + (f" ({100 * share:.2f} %)" if share is not None else "")


def circumstances(run: Run, found: Summary) -> list[str]:
    """What a reader must know of how the run was measured, a line each: checks, noise, what was in memory before."""
    lines = _checks(run, found)
    if run.noise:
        lines.append(_noise(run))
    if run.page_cache:
        lines.append(_page_cache(run, run.page_cache))
    if run.environment_cache:
        lines.append(_environment(run.environment_cache))
    return lines


def _checks(run: Run, found: Summary) -> list[str]:
    """The number of checks that passed, and each check that did not."""
    if not run.checks:
        return []
    passed = len(run.checks) - len(found.failed) - len(found.undecided)
    return [
        f"checks: {passed} of {len(run.checks)} passed",
        *(f"check failed: {check.message} ({check.code})" for check in found.failed),
        *(f"check impossible: {check.message} ({check.code})" for check in found.undecided),
    ]


def _page_cache(run: Run, cache: PageCache) -> str:
    what = "training files" if run.configuration.scheduler == "none" else "HDFS blocks of the training files"
    how = {"as-is": "as found", "warm": "read before the run", "cold": "dropped before the run"}[cache.asked]
    if cache.asked == "cold" and cache.resident_bytes:
        how += "; the rest could not be"
    there, of = cache.resident_bytes / 1e6, cache.total_bytes / 1e6
    state = f": {cache.state}" if cache.state else ""
    return f"{what} in the page cache: {there:.1f} of {of:.1f} MB ({how}){state}"


def _environment(found: EnvironmentCache) -> str:
    """Of each part, how much of what the job needed was in memory before it."""
    known = [
        f"{part.part} {part.there_bytes / 1e6:.0f} of {part.after_bytes / 1e6:.0f} MB ({part.state})"
        for part in found.parts
        if part.state and part.there_bytes is not None and part.after_bytes is not None
    ]
    return f"environment in the page cache before the run: {', '.join(known) or 'unknown'}"


def _noise(run: Run) -> str:
    noise = run.noise
    if noise is None or None in (noise.loop_variation, noise.sleep_over_p99_ns, noise.loopback_p99_ns):
        return "noise: not all of it could be measured"
    of = "" if noise.machine == ALL else f" ({noise.machine})"
    return f"noise: {run_line(noise)}{of}"


def _layers(found: Summary, console: Console) -> Table:
    full, hatched = ("#", "/") if console.options.ascii_only else ("█", "░")
    table = text.table(("layer", "left", 12), ("seconds", "right", 9), ("%", "right", 5), ("lowest", "right", 9),
                   ("highest", "right", 9), ("unexpl.", "right", 8), ("", "left", BAR))  # fmt: skip
    rest = found.unattributed
    assert rest is not None  # there is a wall
    longest = max([part.ns for part in found.parts] + [rest.ns, 1])
    for part in found.parts:
        text.row(table, *_cells(part), _bar(part, longest, full, hatched))
    text.row(table, "", "-" * 9, "-" * 5, "", "", "-" * 8, "")
    total = sum(part.ns for part in found.parts)
    unexplained = sum(part.unexplained_ns for part in found.parts)
    text.row(
        table, "subtotal", text.seconds(total), text.percent(found.share(total)), "", "", text.seconds(unexplained), ""
    )
    marks = hatched * _hatches(rest.ns, longest)
    text.row(table, rest.title, text.seconds(rest.ns), text.percent(rest.share), "", "", text.seconds(rest.ns), marks)
    total += rest.ns
    text.row(
        table,
        "total",
        text.seconds(total),
        text.percent(found.share(total)),
        "",
        "",
        text.seconds(found.unknown_ns),
        "",
    )
    return table


def _cells(part: Part) -> tuple[str, ...]:
    number = f"< {text.seconds(part.hi_ns)}" if part.below_resolution else text.seconds(part.ns)
    unexplained = text.seconds(part.unexplained_ns) if part.unexplained_ns else ""
    return part.title, number, text.percent(part.share), text.seconds(part.lo_ns), text.seconds(part.hi_ns), unexplained


def _bar(part: Part, longest_ns: int, full: str, hatched: str) -> Text:
    unknown = _hatches(part.unexplained_ns, longest_ns)
    known = max(0, round(BAR * part.ns / longest_ns) - unknown)
    return Text(full * known + hatched * unknown, style=_colour(part.layer))


def _hatches(ns: int, longest_ns: int) -> int:
    """Length of a hatched bar; what is not explained shows, however little it is, from a millisecond on."""
    return max(round(BAR * ns / longest_ns), 1 if ns >= 1_000_000 else 0)


def _degrees(found: Summary, console: Console) -> None:
    """How well each layer's time is known; the columns sum to its seconds."""
    text.heading(console, "How well it is known, seconds")
    heads = (("measured", 9), ("between marks", 13), ("named waits", 11), ("unexplained", 11), ("unattributed", 12))
    table = text.table(("layer", "left", 12), *((head, "right", width) for head, width in heads))
    for part in found.parts:
        own = (part.measured_ns, part.between_marks_ns, part.named_wait_ns, part.unexplained_ns)
        text.row(table, part.title, *(text.seconds(ns) if ns else "" for ns in own), "")
    seen, rest_ns = found.seen, found.unattributed.ns if found.unattributed else 0
    sums = (seen.measured_ns, seen.between_marks_ns, seen.named_wait_ns, found.unknown_ns - rest_ns, rest_ns)
    text.row(table, "total", *map(text.seconds, sums))
    text.row(table, "% of wall", *(text.percent(found.share(ns)) for ns in sums))
    console.print(table)


def _sums(found: Summary) -> list[str]:
    wall_ns = found.wall_ns or 0
    sign = "!=" if found.missing_ns else "=="
    unknown = f"{text.seconds(found.unknown_ns)} s, {text.percent(found.unknown_share)} % of the wall"
    return [
        f"total {wall_ns - found.missing_ns:,} ns {sign} wall {wall_ns:,} ns: {found.window}",
        f"not explained (hatched): {unknown}",
        "Moving one uncertain boundary changes two layers: lowest and highest do not sum.",
    ]


def _lengths(lengths: tuple[Length, ...]) -> list[tuple[str, str]]:
    names = (f"{one.name} [{one.length}]" if one.length else one.name for one in lengths)
    return [(one.title, f"{text.seconds(one.ns):>9}  {name}") for one, name in zip(lengths, names, strict=True)]


def _hidden(found: Summary) -> list[tuple[str, str]]:
    rows = []
    for one in found.hidden:
        bounds = f"{text.seconds(one.lo_ns)} to {text.seconds(one.hi_ns)} s inside {title(one.inside)}"
        rows.append((title(one.layer), f"{bounds} (lowest: {one.lo_source}; highest: {one.hi_source})"))
    return rows


def _hdfs(run: Run, console: Console) -> None:
    if not run.hdfs:
        return
    text.heading(console, "HDFS by purpose, in all lanes, so that it may exceed the layer above")
    table = text.table(("purpose", "left", 14), ("calls", "right", 7), ("MB", "right", 9), ("seconds", "right", 15),
                   ("from", "left", 14), ("to", "left", 14))  # fmt: skip
    for row in run.hdfs:
        if row.ns is not None:
            time = text.seconds(row.ns)
        elif row.lo_ns is not None and row.hi_ns is not None:
            time = f"{text.seconds(row.lo_ns)}..{text.seconds(row.hi_ns)}"
        else:
            time = "unknown"
        size = "unknown" if row.bytes is None else f"{row.bytes / 1e6:.3f}"
        text.row(table, row.purpose, text.plain(row.operations), size, time, row.source_begin, row.source_end)
    console.print(table)


def _ranks(run: Run, console: Console) -> None:
    if not run.ranks:
        return
    if run.own:
        _own_ranks(run, console)
        return
    text.heading(console, "Ranks: milliseconds a step")
    table = text.table(("rank", "left", 14), ("steps", "right", 8), ("p50", "right", 10), ("p99", "right", 10),
                   ("max", "right", 10))  # fmt: skip
    for rank in run.ranks:
        p99 = rank.step_p99_ns if (rank.steps or 0) >= SAMPLES_FOR_P99 else None
        times = ("-" if ns is None else f"{ns / 1e6:.3f}" for ns in (rank.step_p50_ns, p99, rank.step_max_ns))
        text.row(table, rank.name, text.plain(rank.steps), *times)
    console.print(table)
    for words in dict.fromkeys(filter(None, map(machine_of, run.ranks))):
        text.line(console, words)
    if slowest := slowest_rank(run):
        text.line(console, slowest)
    if any((rank.steps or 0) < SAMPLES_FOR_P99 for rank in run.ranks):
        text.line(console, f"p99 needs {SAMPLES_FOR_P99} steps; with fewer only the maximum is known")


def _own_ranks(run: Run, console: Console) -> None:
    text.heading(console, "Ranks: seconds in your main function, and of these in DataFeed.next_batch")
    table = text.table(("rank", "left", 14), ("seconds", "right", 10), ("feed", "right", 10))
    for rank in run.ranks:
        lengths = ("unknown" if ns is None else text.seconds(ns) for ns in (rank.main_ns, rank.feed_wait_ns))
        text.row(table, rank.name, *lengths)
    console.print(table)


def _corrections(found: Summary) -> list[tuple[str, str]]:
    largest = {one.kind: f"span {one.largest.span}, {text.short(one.largest.ns)}" for one in found.corrections}
    return [
        (one.kind, f"{text.seconds(one.ns)} s in {one.count}; the largest: {largest[one.kind]}")
        for one in found.corrections
    ]


def _delta(before: Event | None, event: Event) -> str:
    """Seconds since the event before; where neither order nor length is certain, that bound."""
    if before is None:
        return ""
    delta_ns = event.at_ns - before.at_ns
    resolution_ns = max(before.resolution_ns, event.resolution_ns)
    return f"< {text.short(resolution_ns)}" if abs(delta_ns) < resolution_ns else f"{delta_ns / 1e9:+.3f}"


def _colour(layer: str) -> str:
    return LAYERS[layer].colour if layer in LAYERS else ""


def _metrics(run: Run) -> list[tuple[str, str]]:
    return [_metric(name, value) for name, value in metrics(run)]


def _metric(name: str, value: object) -> tuple[str, str]:
    """Lengths in seconds and sizes in MB (10^6 bytes), as the name's suffix tells."""
    if isinstance(value, int) and name.endswith("_ns"):
        return name.removesuffix("_ns"), f"{text.seconds(value)} s"
    if isinstance(value, int) and name.endswith("_bytes"):
        return name.removesuffix("_bytes"), f"{value / 1e6:.1f} MB"
    return name, text.plain(value)
