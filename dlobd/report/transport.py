"""By what a run's bytes went, and what exchanging gradients took, as text."""

from __future__ import annotations

from rich.console import Console

from dlobd.record.run import ExchangeUse, Plane, Run
from dlobd.report import text

SOFT = "in software, functional only: no figure here is one of RDMA"


def transport(run: Run, console: Console) -> None:
    """Prints the verdict on each plane with its evidence, and each rank's exchanges by their parts."""
    text.rows(console, "Transport", [(plane.plane, _plane(plane)) for plane in run.transport or ()])
    if not run.exchange:
        return
    text.heading(console, "Gradient exchange, seconds, all steps together")
    table = text.table(("rank", "left", 10), ("calls", "right", 8), ("MB", "right", 9), ("pack", "right", 8),
                       ("wait", "right", 8), ("wire", "right", 8), ("unpack", "right", 8),
                       ("overlap", "right", 8))  # fmt: skip
    for use in run.exchange:
        text.row(table, *_use(use))
    console.print(table)


def in_one_line(plane: Plane) -> str:
    """What was used, on what, and whether that was asked for."""
    where = ", ".join(filter(None, (plane.device, plane.interface)))
    found = plane.kind + (f" ({where})" if where else "") + (f", Soft-RoCE {SOFT}" if plane.soft else "")
    if not plane.asked:
        return found
    agrees = {True: "as asked", False: "NOT what was asked for", None: "whether that is what was asked is unknown"}
    return f"{found}; {agrees[plane.agrees]}: {plane.asked}"


def _plane(plane: Plane) -> str:
    return "; ".join((in_one_line(plane), *plane.evidence))


def _use(use: ExchangeUse) -> list[str]:
    parts = (use.pack_ns, use.wait_for_peers_ns, use.wire_ns, use.unpack_ns)
    return [
        f"{use.role} {use.index}",
        f"{use.calls:,}",
        "unknown" if use.bytes is None else f"{use.bytes / 1e6:,.1f}",
        *("unknown" if ns is None else text.seconds(ns) for ns in parts),
        "unknown" if use.overlap is None else f"{use.overlap:.2f}",
    ]
