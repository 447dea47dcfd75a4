"""Tables of results: one row per route and point, with intervals over launches, and notes on what they cannot show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlobd.compare.median import Estimate, fewest_repeats, median
from dlobd.compare.permutation import ALPHA
from dlobd.compare.permutation import fewest as fewest_pairs
from dlobd.compare.verdicts import Compared
from dlobd.experiment import channels
from dlobd.micro.estimates import Ends, Row, figure_of, fit, rows
from dlobd.micro.payload import MIB
from dlobd.micro.plan import BARE, BENCHMARKS, Benchmark, Point, Route
from dlobd.micro.results import THIS, Results
from dlobd.micro.samples import fewest
from dlobd.report.tables import Table
from dlobd.report.text import percentage

GRPC_LIMIT_BYTES = 4 * MIB
"""gRPC's default limit of a received message; dlobd's channel has none (grpc.max_receive_message_length)."""


def tables(results: Results) -> list[Table]:
    """Return one table per benchmark, and the table of fits."""
    every = rows(results)
    by_pair = {(row.route, row.point): table for row in every if (table := _pairs(row, results))}
    found = [row for row in every if (row.route, row.point) not in by_pair]
    made = [_table(name, [row for row in found if row.point.benchmark == name], results) for name in BENCHMARKS]
    return [table for table in (*by_pair.values(), *made, _fits(results)) if table.rows]


def _table(name: str, found: Sequence[Row], results: Results) -> Table:
    benchmark = BENCHMARKS[name]
    scale, time_unit = (1e6, "ms") if benchmark.metric == "ms" else (1e3, "us")
    columns: dict[str, list[object]] = {
        "payload": [marked(row) for row in found],
        "channel": [row.route.label for row in found],
        unit(benchmark): [row.figure and f"{row.figure.value:,.4g}" for row in found],
        "95 % interval": [interval(row.figure, row.launches) for row in found],
        f"p99, {time_unit}": [row.p99 and f"{row.p99.value / scale:.4g}" for row in found],
    }
    if name == "exchange":
        columns["algbw, MB/s"] = [row.algbw and f"{row.algbw:,.4g}" for row in found]
        columns["busbw, MB/s"] = [row.busbw and f"{row.busbw:,.4g}" for row in found]
    else:
        columns["of bare"] = [_share(row, found, results) for row in found]
        if benchmark.metric == "MB/s":
            columns["of link"] = [_share_of_link(row) for row in found]
        columns["CPU, us"] = [_ends(row.cpu_ns, 1e3) for row in found]
        columns["context switches+"] = [_ends(row.switches) for row in found]
        columns["system calls+"] = [_ends(row.syscalls) for row in found]
    columns["samples:number+"] = [row.samples for row in found]
    columns["warm-up+"] = [row.warm_up if row.steady else "not steady" for row in found]
    rows = list(zip(*columns.values(), strict=True))
    return Table(f"{name.capitalize()}: {benchmark.title}", " | ".join(columns), rows)


def unit(benchmark: Benchmark) -> str:
    """Return the unit of a benchmark's figure."""
    return "us one way" if benchmark.name == "latency" else benchmark.metric


SLOW = 0.5
"""Share of the fastest pair. A host is slow if even its fastest pair, as a sender or as a receiver, is below."""


def _pairs(row: Row, results: Results) -> Table | None:
    """Return the table of a row by pair of hosts; None unless several pairs were measured."""
    every: dict[tuple[str, ...], list[float | None]] = {}
    for launch, one in results.at(row.route, row.point):
        every.setdefault(launch.hosts, []).append(figure_of(one))
    figures = {hosts: figure for hosts, own in every.items() if (figure := median(own))}
    if len(figures) < 2:
        return None
    sign = -1 if row.metric in ("us", "ms") else 1
    fastest = max(figure.value**sign for figure in figures.values())
    speeds = {hosts: figure.value**sign / fastest for hosts, figure in figures.items()}
    cells = [
        (" -> ".join(reversed(hosts)), f"{one.value:,.4g}", interval(one, len(every[hosts])), percentage(speeds[hosts]))
        for hosts, one in sorted(figures.items(), key=lambda item: speeds[item[0]])
    ]
    title = f"{row.point.benchmark.capitalize()} by pair of hosts: {row.route.label}, {described(row.point)}"
    slow = [
        f"{name} as {role}"
        for place, role in enumerate(("receiver", "sender"))
        for name in sorted({hosts[place] for hosts in speeds})
        if max(speed for hosts, speed in speeds.items() if hosts[place] == name) < SLOW
    ]
    note = f"Slow: {', '.join(slow)}: below half of the fastest pair." if slow else ""
    return Table(title, f"pair | {row.metric} | 95 % interval | of the fastest", cells, note)


def described(point: Point) -> str:
    """Return the payload of a point, with the other settings that distinguish it."""
    parts = [point.payload.name]
    if point.payload.serialized:
        parts.append("serialized")
    if point.rate:
        parts.append(f"open loop, {point.rate:g}/s")
    return ", ".join(parts)


def marked(row: Row) -> str:
    """Return the payload of a row, with a mark if it had more processes than cores."""
    return f"{described(row.point)}, oversubscribed" if row.oversubscribed else described(row.point)


def interval(found: Estimate | None, launches: int) -> str:
    """Format the interval of an estimate, with its number of launches."""
    if found is None or found.low is None or found.high is None:
        return f"- (n={launches})"
    return f"{found.low:,.4g} to {found.high:,.4g} (n={launches})"


def _ends(values: Ends, scale: float = 1.0) -> str:
    return "/".join("-" if value is None else f"{value / scale:.3g}" for value in values)


def _share(row: Row, found: Sequence[Row], results: Results) -> str | None:
    """Return the share of the ceiling: the bare socket over the same channel, or memcpy for shared memory."""
    faster_is_less = row.metric in ("us", "ms")
    if row.route.library == BARE:
        return "bare"
    for other in found:
        if other.route == replace(row.route, library=BARE) and other.point == row.point and other.figure and row.figure:
            share = row.figure.value / other.figure.value
            return percentage(1 / share if faster_is_less else share)
    is_here = results.place == THIS  # where memcpy was measured
    if is_here and row.route.transport == "shm" and row.metric == "MB/s" and row.figure and results.memcpy_bytes_per_s:
        return f"{percentage(1e6 * row.figure.value / results.memcpy_bytes_per_s)} of memcpy"
    return None


def _share_of_link(row: Row) -> str | None:
    """Return the share of the link's rate, which a link has in each direction."""
    if row.figure is None or row.link_bytes_per_s is None:
        return None
    directions = 2 if row.point.benchmark == "bidirectional" else 1
    return percentage(1e6 * row.figure.value / directions / row.link_bytes_per_s)


def _fits(results: Results) -> Table:
    found = [(route, fit(results, route)) for route in results.routes()]
    cells = [
        (
            route.label,
            f"{one.alpha.value / 1e3:.4g}",
            interval(one.alpha.times(1e-3), len(one.launches)),
            f"{1e3 / one.beta.value:,.4g}" if one.beta.value else None,
            percentage(one.error),
            one.points,
        )
        for route, one in found
        if one
    ]
    heads = "channel | alpha, us | 95 % interval | 1/beta, MB/s | median error | sizes:number"
    return Table("Fit: time of a message, or of an exchange = alpha + bytes * beta", heads, cells)


def comparison(found: Mapping[Point, Compared], first: Route, second: Route) -> Table:
    """Return the table of a comparison of two routes."""
    cells = []
    for point, one in found.items():
        ends = (one.share.low, one.share.high) if one.share else (None, None)
        change = one.difference_share, *ends, f"{one.p:.3g}", one.verdict
        cells.append((point.benchmark, described(point), *change, one.runs[0]))
    note = "Permutation test of the times over launches, with Holm's correction over all points, at 5 %."
    needed = fewest_pairs(ALPHA / max(1, len(found)), paired=True)
    if any(one.runs[0] < needed for one in found.values()):
        note += f" With {len(found)} points, a difference needs {needed} launches: --launches {needed}."
    heads = "benchmark | payload | time, %:share | lowest, %:share | highest, %:share | p | verdict | launches:number"
    return Table(f"{second.label} compared with {first.label}", heads, cells, note)


def notes(results: Results) -> Iterator[str]:
    """Yield remarks on the results; failures are first."""
    for launch in results.launches:
        if launch.failed:
            kept = f"{len(launch.points)} points kept"
            yield f"FAILED: launch {launch.number + 1} of {launch.route.label}: {launch.failed} ({kept})."
    found = rows(results)
    for row in found:
        if row.bad:
            yield f"WRONG CONTENT: {row.bad} messages, {row.route.label}, {described(row.point)}."
    for launch in results.launches:
        plane = launch.transport
        if plane and plane.agrees is not True:
            why = plane.disagreement() or f"transport {plane.kind}: {plane.evidence[-1]}"
            yield f"TRANSPORT: launch {launch.number + 1} of {launch.route.label}: {why}."
    for route in results.routes():
        if count := sum(launch.retransmitted_bytes or 0 for launch in results.of(route)):
            yield f"Retransmissions, {route.label}: {count:,} bytes. The figures include them."
    yield from results.notes
    used = {plane.kind for launch in results.launches if (plane := launch.transport) and plane.agrees}
    if used:
        yield f"Transport shown by the kernel's counters: {', '.join(sorted(used))}."
    if any(row.figure and row.figure.low is None for row in found):
        yield f"An interval needs {fewest_repeats()} launches; with fewer it is withheld."
    if any(row.p99 is None and row.samples for row in found):
        yield f"p99 needs {fewest(0.99):,} samples per launch; with fewer it is withheld."
    if any(row.oversubscribed for row in found):
        yield "Oversubscribed: a host has more processes than cores. Fits leave these rows out."
    if any(row.busbw and row.route.exchange in channels.SERVED for row in found):
        yield "busbw of parameter servers compares times; their links carry other bytes than those of an all-reduce."
    large = [row for row in found if row.route.library == "grpc" and row.point.payload.bytes > GRPC_LIMIT_BYTES]
    if large:
        yield "grpc: its default limit of 4 MiB per message was raised."
    clocks = [(one.clock_cost_ns or 0, one.clock_resolution_ns or 0) for one in results.launches if one.clock_cost_ns]
    if clocks:
        cost_ns, step_ns = map(max, zip(*clocks, strict=True))
        yield f"Clock: a reading takes {cost_ns} ns; its step is {step_ns} ns. CPU: measuring end / other end."
