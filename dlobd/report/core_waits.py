"""How the wall passed for the threads that carried it: on a core, waiting for one, or blocked; and who read disks."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Console

from dlobd.record.resources import CoreWaits, LaneTime, ThreadUse
from dlobd.record.run import Run
from dlobd.report import text
from dlobd.report.summary import title


def by_layer(run: Run, console: Console) -> None:
    """Prints, for each layer, how its time of the wall passed."""
    found = run.core_waits
    if found is None:
        text.line(console, "\nOn a core or waiting for one: unknown, as no process was looked at.")
        return
    text.heading(console, "How it passed for the thread that carried it, seconds")
    table = text.table(("layer", "left", 12), ("on a core", "right", 9), ("waited for one", "right", 14),
                       ("at least", "right", 9), ("at most", "right", 9), ("blocked", "right", 9),
                       ("unknown", "right", 9))  # fmt: skip
    for row in found.layers:
        text.row(table, title(row.layer), *_cells(row))
    text.row(table, "total", *_cells(found.whole))
    console.print(table)
    for why, ns in found.unknown:
        text.line(console, f"unknown, {text.seconds(ns)} s: {why}")


def _cells(row: LaneTime) -> tuple[str, ...]:
    """A cell is empty where nothing of the row is known."""
    lengths = (row.on_core_ns, row.waiting_ns, row.waiting_lo_ns, row.waiting_hi_ns, row.blocked_ns)
    known = row.unknown_ns < row.ns
    return *(text.seconds(ns) if known else "" for ns in lengths), text.seconds(row.unknown_ns)


def by_role(found: CoreWaits, console: Console) -> None:
    """Prints thread time and disk reads of processes by their roles, the pressure on hosts, and what others used."""
    text.heading(console, "Thread time and disk reads by role, in the window")
    blocked = any(process.block_io_ns is not None for process in found.processes)
    table = text.table(("role", "left", 18), ("count", "right", 5), ("on a core s", "right", 11),
                       ("of ended s", "right", 10), ("waited s", "right", 8), ("read MB", "right", 8),
                       ("faults", "right", 7), *([("disk s", "right", 7)] if blocked else []))  # fmt: skip
    roles: dict[str, list[ThreadUse]] = defaultdict(list)
    for process in found.processes:
        roles[process.role].append(process)
    for role, alike in roles.items():
        read = _sum([one.read_bytes for one in alike])
        text.row(
            table,
            role,
            str(len(alike)),
            *(
                _seconds([getattr(one, name) for one in alike])
                for name in ("on_core_ns", "ended_on_core_ns", "waiting_ns")
            ),
            "unknown" if read is None else f"{read / 1e6:.1f}",
            text.plain(_sum([one.major_faults for one in alike])),
            *([_seconds([one.block_io_ns for one in alike])] if blocked else []),
        )
    console.print(table)
    text.line(console, "All threads of a process add up; of ended: what no living thread has.")
    text.line(console, "faults: pages that had to be read from a disk." + " disk s: blocked by disks." * blocked)
    for host in found.pressure:
        stalls = f"{text.seconds(host.cpu_ns)} s for a core, {text.seconds(host.io_ns)} s for a disk"
        text.line(console, f"in {text.seconds(host.sampled_ns)} s on {host.host}, some task waited {stalls}")
    text.line(console, others(found))


def others(found: CoreWaits) -> str:
    """What other processes of the machine used, and for how long they held the run up, in a line."""
    if found.held_up_ns is None or found.foreign_cpu_ns is None:
        return "other processes: unknown, as not all of the run's own are seen"
    busy = "; the machine was busy" * bool(found.busy)
    return (
        f"other processes used {text.seconds(found.foreign_cpu_ns)} s of CPU, which held the run up for about "
        f"{text.seconds(found.held_up_ns)} s{busy}"
    )


def _sum(values: list[int | None]) -> int | None:
    """Of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _seconds(lengths: list[int | None]) -> str:
    total = _sum(lengths)
    return "unknown" if total is None else text.seconds(total)
