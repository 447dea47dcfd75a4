"""Tables of results: one row per route and point, with intervals over launches, and notes on what they cannot show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlobd.experiment import channels
from dlobd.micro.estimates import Comparison, Estimate, Row, fit, over_launches, rows, values
from dlobd.micro.payload import MIB
from dlobd.micro.plan import BARE, BENCHMARKS, Benchmark, Point, Route
from dlobd.micro.results import Results
from dlobd.micro.samples import fewest
from dlobd.report.tables import Table
from dlobd.report.text import percentage

GRPC_LIMIT_BYTES = 4 * MIB
"""gRPC's default limit of a received message; dlobd's channel has none (grpc.max_receive_message_length)."""


def tables(results: Results) -> list[Table]:
    """Return one table per benchmark, and the table of fits."""
    if pairs := _pairs(results):
        return pairs
    found = rows(results)
    made = [_table(name, [row for row in found if row.point.benchmark == name], results) for name in BENCHMARKS]
    return [table for table in (*made, _fits(results)) if table.rows]


def _table(name: str, found: Sequence[Row], results: Results) -> Table:
    benchmark = BENCHMARKS[name]
    scale = 1e6 if benchmark.metric == "ms" else 1e3
    columns: dict[str, list[object]] = {
        "payload": [marked(row) for row in found],
        "channel": [row.route.label for row in found],
        unit(benchmark): [row.figure and f"{row.figure.value:,.4g}" for row in found],
        "95 % interval": [interval(row.figure) for row in found],
        "p99": [row.p99 and f"{row.p99.value / scale:.4g}" for row in found],
    }
    if name == "exchange":
        columns["algbw, MB/s"] = [row.algbw and f"{row.algbw:,.4g}" for row in found]
        columns["busbw, MB/s"] = [row.busbw and f"{row.busbw:,.4g}" for row in found]
    else:
        columns["of bare"] = [_share(row, found, results) for row in found]
        if benchmark.metric == "MB/s":
            columns["of link"] = [_share_of_link(row) for row in found]
        columns["CPU, us"] = [_pair(row.cpu_ns, row.peer_cpu_ns, "{:.3g}", 1e3) for row in found]
        columns["context switches+"] = [_pair(row.switches, row.peer_switches) for row in found]
        columns["system calls+"] = [row.syscalls and f"{row.syscalls:.2g}" for row in found]
    columns["samples:number+"] = [row.samples for row in found]
    columns["warm-up+"] = [row.warm_up if row.steady else "not steady" for row in found]
    rows = list(zip(*columns.values(), strict=True))
    return Table(f"{name.capitalize()}: {benchmark.title}", " | ".join(columns), rows)


def unit(benchmark: Benchmark) -> str:
    """Return the unit of a benchmark's figure."""
    return "us one way" if benchmark.name == "latency" else benchmark.metric


SLOW = 0.5
"""Share of the fastest pair. A host is slow if even its fastest pair, as a sender or as a receiver, is below."""


def _by_pair(results: Results, row: Row) -> dict[tuple[str, ...], Estimate]:
    """Return the figure of a row for each pair of hosts."""
    found = {}
    for hosts in dict.fromkeys(launch.hosts for launch in results.of(row.route)):
        own = replace(results, launches=tuple(launch for launch in results.of(row.route) if launch.hosts == hosts))
        if figure := over_launches(values(own, row.route, row.point)):
            found[hosts] = figure
    return found


def _speeds(row: Row, figures: Mapping[tuple[str, ...], Estimate]) -> dict[tuple[str, ...], float]:
    """Return the speed of each pair, relative to the fastest pair."""
    sign = -1 if row.metric in ("us", "ms") else 1
    speeds = {hosts: figure.value**sign for hosts, figure in figures.items()}
    fastest = max(speeds.values())
    return {hosts: speed / fastest for hosts, speed in speeds.items()}


def _pairs(results: Results) -> list[Table]:
    """Return one table per route and point, if several pairs of hosts were measured."""
    made = []
    for row in rows(results):
        figures = _by_pair(results, row)
        if len(figures) < 2:
            continue
        speeds = _speeds(row, figures)
        cells = [
            (" -> ".join(reversed(hosts)), f"{one.value:,.4g}", interval(one), percentage(speeds[hosts]))
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
        made.append(Table(title, f"pair | {row.metric} | 95 % interval | of the fastest", cells, note))
    return made


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


def interval(found: Estimate | None) -> str:
    """Format the interval of an estimate, with its number of launches."""
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return "1 launch"
    return f"{found.low:,.4g} to {found.high:,.4g} (n={found.launches})"


def _pair(first: float | None, second: float | None, form: str = "{:.2g}", scale: float = 1.0) -> str:
    return "/".join("-" if value is None else form.format(value / scale) for value in (first, second))


def _share(row: Row, found: Sequence[Row], results: Results) -> str | None:
    """Return the share of the ceiling: the bare socket over the same channel, or memcpy for shared memory."""
    faster_is_less = row.metric in ("us", "ms")
    for other in found:
        same = other.point == row.point and other.route.channel == row.route.channel
        if same and other.route.library == BARE and other.figure and row.figure and row.figure.value:
            share = other.figure.value / row.figure.value if faster_is_less else row.figure.value / other.figure.value
            return "bare" if row.route.library == BARE else percentage(share)
    if row.route.transport == "shm" and row.metric == "MB/s" and row.figure and results.memcpy_bytes_per_s:
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
            interval(one.alpha.times(1e-3)),
            f"{1e3 / one.beta.value:,.4g}" if one.beta.value else None,
            percentage(one.error),
            one.points,
        )
        for route, one in found
        if one
    ]
    heads = "channel | alpha, us | 95 % interval | 1/beta, MB/s | median error | sizes:number"
    return Table("Fit: time of a message, or of an exchange = alpha + bytes * beta", heads, cells)


def comparison(found: Sequence[Comparison], first: Route, second: Route) -> Table:
    """Return the table of a comparison of two routes."""
    cells = [
        (
            one.point.benchmark,
            described(one.point),
            f"{one.ratio:.3f}",
            f"{one.p:.3g}",
            "different" if one.different else "not shown to differ",
            one.launches,
        )
        for one in found
    ]
    note = "Permutation test over launches, with Holm's correction over all points, at 5 %."
    heads = "benchmark | payload | ratio | p | verdict | launches:number"
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
    again: dict[str, int] = {}
    for launch in results.launches:
        if launch.retransmitted_bytes:
            again[launch.route.label] = again.get(launch.route.label, 0) + launch.retransmitted_bytes
    for label, count in again.items():
        yield f"Retransmissions, {label}: {count:,} bytes. The figures include them."
    yield from results.notes
    used = {plane.kind for launch in results.launches if (plane := launch.transport) and plane.agrees}
    if used:
        yield f"Transport shown by the kernel's counters: {', '.join(sorted(used))}."
    if any(row.p99 is None and row.samples for row in found):
        yield f"p99 needs {fewest(0.99):,} samples per launch; with fewer it is withheld."
    if any(row.oversubscribed for row in found):
        yield f"Oversubscribed: more processes than the {results.cores} cores of a host. Fits leave these rows out."
    if any(row.busbw and row.route.exchange in channels.SERVED for row in found):
        yield "busbw of parameter servers compares times; their links carry other bytes than those of an all-reduce."
    large = [row for row in found if row.route.library == "grpc" and row.point.payload.bytes > GRPC_LIMIT_BYTES]
    if large:
        yield "grpc: its default limit of 4 MiB per message was raised."
    clocks = [one for one in results.launches if one.clock_cost_ns is not None]
    if clocks:
        cost_ns, step_ns = (max(getattr(one, name) or 0 for one in clocks) for name in _CLOCK)
        yield f"Clock: a reading takes {cost_ns} ns; its step is {step_ns} ns. CPU: measuring end / other end."


_CLOCK = ("clock_cost_ns", "clock_resolution_ns")
