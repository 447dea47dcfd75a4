"""The terminal report: where the wall time went, and what happened from submit to first step and back.

Renders from the run's record (run.json as a dictionary) alone. It fits 80 columns and needs no colour to be read.
Seconds come first, percent second, and the window is named. Time that is not explained is hatched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlobd.attribution.audits import figures
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.run.machine_noise import ALL, Noise

WIDTH = 79
BAR = 20
UNEXPLAINED_LIMIT = 0.05
"""A run that cannot explain more than this share of its wall says so first."""

SAMPLES_FOR_P99 = 299
"""With fewer samples the 99th percentile is not bounded by the maximum with 95 % confidence: it is not printed."""


def breakdown(run: dict[str, Any], console: Console) -> None:
    """Prints the verdict, the wall split by layer, and what the split does not show."""
    _line(console, f"run {run['run_id']}  {run['experiment']}  status {run['status']}", "bold")
    _line(console, _settings(run["configuration"]))
    _line(console, verdict(run), "bold")
    for warning in _warnings(run):
        _line(console, f"warning: {warning}", "yellow")
    for text in _audits(run):
        _line(console, text)
    if run["noise"]:
        _line(console, _noise(run["noise"]))
    if run["wall_ns"] is None:
        _line(console, "No breakdown: the run has no window, so that there is no wall time to split.")
        return
    _heading(console, f"Where the wall time went ({_window(run)})")
    console.print(_layers(run, console))
    for text in _sums(run):
        _line(console, text)
    _rows(console, "Named causes, contained in the layers above", _causes(run))
    _rows(console, "The largest parts", _largest(run))
    _rows(console, "Hidden inside another layer, known as an interval", _intervals(run))
    _rows(
        console,
        "Not measured",
        [
            # where nothing contains a layer, it took no part in the run
            (_title(n["layer"]), f"inside {_title(n['inside'])}: {n['why']}" if n["inside"] else n["why"])
            for n in run["not_measured"]
        ],
    )
    _hdfs(run, console)
    _ranks(run, console)
    _rows(console, "Corrections made to the evidence", _clips(run))
    _rows(console, "Metrics", _metrics(run))
    if run.get("overhead"):
        _line(console, "\n" + recording(run["overhead"]))
    outside = [(key.removesuffix("_ns"), _seconds(ns)) for key, ns in run["setup"].items() if ns is not None]
    _rows(console, "Outside the window, seconds", outside)


def anatomy(run: dict[str, Any], console: Console) -> None:
    """Prints the events of start-up and teardown in the order in which they happened."""
    for title, events in (("Start-up", run["startup"]), ("Teardown", run["teardown"])):
        if not events:
            _line(console, f"\n{title}: no event was recorded.")
            continue
        start_ns = run["window"]["start_ns"] if run["window"] else events[0]["at_ns"]
        _heading(
            console,
            f"{title}: seconds since {_window(run).partition(' -> ')[0] if run['window'] else 'the first event'}",
        )
        table = _table(("seconds", "right", 9), ("+", "right", 10), ("event", "left", 24), ("source", "left", 14),
                       ("known to", "right", 8), ("clock", "left", 9))  # fmt: skip
        before = None
        for event in events:
            row = _seconds(event["at_ns"] - start_ns), _delta(before, event), event["event"], event["source"]
            _row(table, *row, _short(event["resolution_ns"]), event.get("clock", "monotonic"))
            before = event
        console.print(table)


def verdict(run: dict[str, Any]) -> str:
    """One sentence: how the run ended, or else which layer took the most and how much is not explained."""
    if run["status"] != "ok":
        return f"The run is {run['status']}: {run['cause'] or 'the cause is unknown'}."
    if not run["layers"] or not run["wall_ns"]:
        return "Nothing was measured."
    top = max(run["layers"], key=lambda row: int(row["ns"]))
    return (
        f"{_title(top['layer'])} took most: {_seconds(top['ns'])} of {_seconds(run['wall_ns'])} s, "
        f"{_percent(top['ns'], run)} % ({_percent(top['lo_ns'], run)} to {_percent(top['hi_ns'], run)} %). "
        f"Not explained: {_seconds(_unknown(run))} s, {_percent(_unknown(run), run)} %."
    )


def recording(overhead: dict[str, Any]) -> str:
    """One sentence: what dlobd itself cost; estimates are spans times what one costs."""
    if overhead["recording"] == "off":
        return "recording: off"
    lost = f", {overhead['lost_lines']:,} lines lost" if overhead["lost_lines"] else ""
    if overhead["span_cost_ns"] is None:
        return f"recording: {overhead['spans']:,} spans{lost}; what they cost is unknown"
    parts = [f"{_cost(overhead['chain_ns'], overhead['chain_share'])} of the wall"]
    if loop := overhead["loop"]:
        parts.append(
            f"{_cost(loop['ns'], loop['share'])} of the {_seconds(loop['length_ns'])} s loop of {loop['rank']}"
        )
    if overhead["flush_cpu_ns"] is not None:
        parts.append(f"{overhead['flush_cpu_ns'] / 1e9:.4f} s of CPU for writing in all processes")
    each = f"{overhead['spans']:,} spans x {overhead['span_cost_ns'] / 1e3:.1f} us{lost}"
    return f"recording: {each}; about {', '.join(parts)}"


def _cost(ns: int, share: float | None) -> str:
    return f"{ns / 1e9:.4f} s" + (f" ({100 * share:.2f} %)" if share is not None else "")


def _settings(configuration: dict[str, Any]) -> str:
    if "script" in configuration:
        return ("own script {script}, {workers} executors, launcher {launcher} on {scheduler} ({deploy_mode})").format(
            **configuration
        )
    return (
        "{model} on {dataset}, {workers} workers, launcher {launcher} on {scheduler} ({deploy_mode}), "
        "input {input}, channel {channel}, exchange {exchange}"
    ).format(**configuration)


def _warnings(run: dict[str, Any]) -> list[str]:
    found = list(run.get("warnings", []))
    inconsistent = [clip for clip in run["clips"] if clip["kind"] == "inconsistent"]
    if inconsistent:
        found.append(f"the evidence is inconsistent in {len(inconsistent)} places; see the corrections below.")
    if run["wall_ns"] and _unknown(run) > UNEXPLAINED_LIMIT * run["wall_ns"]:
        found.append(f"more than {UNEXPLAINED_LIMIT:.0%} of the wall is not explained.")
    missing = _missing(run)
    if missing:
        found.append(f"the parts do not sum to the wall: {missing} ns are missing.")
    return found


def _audits(run: dict[str, Any]) -> list[str]:
    """How many sources agree; each pair that does not, with both figures."""
    if run["audits"] is None:
        return [] if run["wall_ns"] is None else ["audits: unknown, as it was made by an older dlobd: dlobd verify"]
    counts = Counter(one["verdict"] for one in run["audits"])
    failed = [one for one in run["audits"] if one["verdict"] == "fail"]
    line = f"audits: {counts['pass']} pass, {counts['unknown']} unknown"
    return [line + f", {len(failed)} FAIL" * bool(failed), *(f"audit failed: {figures(one)}" for one in failed)]


def _noise(found: dict[str, Any]) -> str:
    figures_alone = {field.name: found[field.name] for field in fields(Noise)}
    if None in (figures_alone["loop_variation"], found["sleep_over_p99_ns"], found["loopback_p99_ns"]):
        return "noise: not all of it could be measured"
    of = "" if found["machine"] == ALL else f" ({found['machine']})"
    return f"noise: {Noise(**figures_alone).short()}{of}"


def _layers(run: dict[str, Any], console: Console) -> Table:
    full, hatched = ("#", "/") if console.options.ascii_only else ("█", "░")
    table = _table(("layer", "left", 12), ("seconds", "right", 9), ("%", "right", 5), ("lowest", "right", 9),
                   ("highest", "right", 9), ("unexpl.", "right", 8), ("", "left", BAR))  # fmt: skip
    longest = max([row["ns"] for row in run["layers"]] + [run["unattributed_ns"], 1])
    hidden = {i[key] for i in run.get("intervals", []) for key in ("layer", "inside")}
    for row in run["layers"]:
        unknown = _hatches(row["unexplained_ns"], longest)
        known = max(0, round(BAR * row["ns"] / longest) - unknown)
        bar = Text(full * known + hatched * unknown, style=_colour(row["layer"]))
        # below what the boundaries are certain to there is no number; an interval's bounds are another matter
        small = row["layer"] not in hidden and 0 < row["ns"] < row["hi_ns"] - row["ns"]
        number = f"< {_seconds(row['hi_ns'])}" if small else _seconds(row["ns"])
        _row(
            table,
            _title(row["layer"]),
            number,
            _percent(row["ns"], run),
            _seconds(row["lo_ns"]),
            _seconds(row["hi_ns"]),
            _seconds(row["unexplained_ns"]) if row["unexplained_ns"] else "",
            bar,
        )
    _row(table, "", "-" * 9, "-" * 5, "", "", "-" * 8, "")
    total = sum(row["ns"] for row in run["layers"])
    unexplained = sum(row["unexplained_ns"] for row in run["layers"])
    _row(table, "subtotal", _seconds(total), _percent(total, run), "", "", _seconds(unexplained), "")
    none = run["unattributed_ns"]
    marks = hatched * _hatches(none, longest)
    _row(table, UNATTRIBUTED, _seconds(none), _percent(none, run), "", "", _seconds(none), marks)
    total += none
    _row(table, "total", _seconds(total), _percent(total, run), "", "", _seconds(_unknown(run)), "")
    return table


def _hatches(ns: int, longest_ns: int) -> int:
    """Length of a hatched bar; what is not explained shows, however little it is, from a millisecond on."""
    return max(round(BAR * ns / longest_ns), 1 if ns >= 1_000_000 else 0)


def _sums(run: dict[str, Any]) -> list[str]:
    total = sum(row["ns"] for row in run["layers"]) + run["unattributed_ns"]
    sign = "!=" if _missing(run) else "=="
    return [
        f"total {total:,} ns {sign} wall {run['wall_ns']:,} ns: {_window(run)}",
        f"not explained (hatched): {_seconds(_unknown(run))} s, {_percent(_unknown(run), run)} % of the wall",
        "Moving one uncertain boundary changes two layers: lowest and highest do not sum.",
    ]


def _causes(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (_title(row["layer"]), f"{_seconds(ns):>9}  {cause}")
        for row in run["layers"]
        for cause, ns in row.get("causes", [])
    ]


def _largest(run: dict[str, Any], count: int = 10) -> list[tuple[str, str]]:
    parts = [(ns, row["layer"], name) for row in run["layers"] for name, ns in row.get("names", [])]
    largest = sorted(parts, key=lambda part: (-part[0], part[1:]))[:count]
    return [(_title(layer), f"{_seconds(ns):>9}  {name}") for ns, layer, name in largest]


def _intervals(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Intervals by layer, container and sources: their bounds add up, since each lies in a stretch of its own."""
    low: Counter[tuple[str, ...]] = Counter()
    high: Counter[tuple[str, ...]] = Counter()
    for interval in run.get("intervals", []):
        key = tuple(interval[field] for field in ("layer", "inside", "lo_source", "hi_source"))
        low[key] += interval["lo_ns"]
        high[key] += interval["hi_ns"]
    rows = []
    for key in low:
        layer, inside, low_source, high_source = key
        bounds = f"{_seconds(low[key])} to {_seconds(high[key])} s inside {_title(inside)}"
        rows.append((_title(layer), f"{bounds} (lowest: {low_source}; highest: {high_source})"))
    return rows


def _hdfs(run: dict[str, Any], console: Console) -> None:
    if not run["hdfs"]:
        return
    _heading(console, "HDFS by purpose, in all lanes, so that it may exceed the layer above")
    table = _table(("purpose", "left", 14), ("calls", "right", 7), ("MB", "right", 9), ("seconds", "right", 15),
                   ("from", "left", 14), ("to", "left", 14))  # fmt: skip
    for row in run["hdfs"]:
        if row["ns"] is not None:
            time = _seconds(row["ns"])
        elif row["lo_ns"] is not None and row["hi_ns"] is not None:
            time = f"{_seconds(row['lo_ns'])}..{_seconds(row['hi_ns'])}"
        else:
            time = "unknown"
        size = "unknown" if row["bytes"] is None else f"{row['bytes'] / 1e6:.3f}"
        _row(table, row["purpose"], _plain(row["operations"]), size, time, row["source_begin"], row["source_end"])
    console.print(table)


def _ranks(run: dict[str, Any], console: Console) -> None:
    if not run["ranks"]:
        return
    if all("main_ns" in rank for rank in run["ranks"]):
        _own_ranks(run, console)
        return
    _heading(console, "Ranks: milliseconds a step")
    table = _table(("rank", "left", 14), ("steps", "right", 8), ("p50", "right", 10), ("p99", "right", 10),
                   ("max", "right", 10))  # fmt: skip
    for rank in run["ranks"]:
        p99 = rank["step_p99_ns"] if (rank["steps"] or 0) >= SAMPLES_FOR_P99 else None
        times = ("-" if ns is None else f"{ns / 1e6:.3f}" for ns in (rank["step_p50_ns"], p99, rank["step_max_ns"]))
        _row(table, f"{rank['role']} {rank['index']}", _plain(rank["steps"]), *times)
    console.print(table)
    medians = {f"{r['role']} {r['index']}": r["step_p50_ns"] for r in run["ranks"] if r["step_p50_ns"]}
    if len(medians) > 1:
        slow = max(medians, key=medians.__getitem__)
        _line(console, f"slowest median: {slow}, {medians[slow] / min(medians.values()):.2f} x the fastest")
    if any((rank["steps"] or 0) < SAMPLES_FOR_P99 for rank in run["ranks"]):
        _line(console, f"p99 needs {SAMPLES_FOR_P99} steps; with fewer only the maximum is known")


def _own_ranks(run: dict[str, Any], console: Console) -> None:
    _heading(console, "Ranks: seconds in your main function, and of these in DataFeed.next_batch")
    table = _table(("rank", "left", 14), ("seconds", "right", 10), ("feed", "right", 10))
    for rank in run["ranks"]:
        length = "unknown" if rank["main_ns"] is None else _seconds(rank["main_ns"])
        _row(table, f"{rank['role']} {rank['index']}", length, _seconds(rank["feed_wait_ns"]))
    console.print(table)


def _clips(run: dict[str, Any]) -> list[tuple[str, str]]:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for clip in run["clips"]:
        kinds.setdefault(clip["kind"], []).append(clip)
    rows = []
    for kind, clips in kinds.items():
        largest = max(clips, key=lambda clip: int(clip["ns"]))
        length = _seconds(sum(clip["ns"] for clip in clips))
        rows.append((kind, f"{length} s in {len(clips)}; the largest: span {largest['span']}, {_short(largest['ns'])}"))
    return rows


def _delta(before: dict[str, Any] | None, event: dict[str, Any]) -> str:
    """Seconds since the event before; where neither order nor length is certain, that bound."""
    if before is None:
        return ""
    delta_ns = event["at_ns"] - before["at_ns"]
    resolution_ns = max(before["resolution_ns"], event["resolution_ns"])
    return f"< {_short(resolution_ns)}" if abs(delta_ns) < resolution_ns else f"{delta_ns / 1e9:+.3f}"


def _unknown(run: dict[str, Any]) -> int:
    return int(run["unattributed_ns"]) + sum(int(row["unexplained_ns"]) for row in run["layers"])


def _missing(run: dict[str, Any]) -> int:
    if run["wall_ns"] is None:
        return 0
    return int(run["wall_ns"]) - int(run["unattributed_ns"]) - sum(int(row["ns"]) for row in run["layers"])


def _window(run: dict[str, Any]) -> str:
    return run["window"]["name"] if run["window"] else "window unknown"


def _title(layer: str) -> str:
    return LAYERS[layer].title if layer in LAYERS else layer


def _colour(layer: str) -> str:
    return LAYERS[layer].colour if layer in LAYERS else ""


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.3f}"


def _percent(ns: int, run: dict[str, Any]) -> str:
    return f"{100 * ns / run['wall_ns']:.1f}" if run["wall_ns"] else "-"


def _short(ns: int) -> str:
    """A length in its largest unit, for example 10 ms."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns // size} {unit}"
    return f"{ns} ns"


def _plain(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)


def _metrics(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Of a script of one's own the metrics of training are not known, and not missed."""
    own = "script" in run["configuration"]
    return [_metric(key, value) for key, value in run["metrics"].items() if value is not None or not own]


def _metric(name: str, value: object) -> tuple[str, str]:
    """Lengths in seconds and sizes in MB (10^6 bytes), as the name's suffix tells."""
    if isinstance(value, int) and name.endswith("_ns"):
        return name.removesuffix("_ns"), f"{_seconds(value)} s"
    if isinstance(value, int) and name.endswith("_bytes"):
        return name.removesuffix("_bytes"), f"{value / 1e6:.1f} MB"
    return name, _plain(value)


def _table(*columns: tuple[str, Any, int]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for header, justify, width in columns:
        table.add_column(header, justify=justify, width=width, overflow="fold")
    return table


def _row(table: Table, *cells: str | Text) -> None:
    # names from a run may hold brackets, which are not markup
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _rows(console: Console, heading: str, rows: list[tuple[str, str]]) -> None:
    if not rows:
        return
    _heading(console, heading)
    table = _table(("", "left", 20), ("", "left", WIDTH - 22))
    table.show_header = False
    for name, text in rows:
        _row(table, name, text)
    console.print(table)


def _heading(console: Console, text: str) -> None:
    _line(console, f"\n{text}", "bold")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), width=WIDTH)
