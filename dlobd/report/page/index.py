"""View of the page that lists many runs: the rows of `dlobd.report.history`, with links to bundles and report pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from dlobd import __version__
from dlobd.bundle.store import Bundle
from dlobd.layers import title
from dlobd.report.history import Row, rows


def index(bundles: Sequence[Bundle], page: Path) -> dict[str, object]:
    """Build the view of the list of runs, the newest first. Links are relative to the directory of `page`."""
    found = rows(bundles)
    return {
        "title": f"{len(found)} runs{_period(found)} - dlobd",
        "version": __version__,
        "rows": [_row(row, page.absolute().parent) for row in found],
    }


def _row(row: Row, base: Path) -> dict[str, object]:
    bundle = Path(row.path)
    links = [("bundle", bundle), ("report", bundle / "report.html")]
    share = f" {100 * row.layer_ns / row.wall_ns:.0f} %" if row.layer_ns and row.wall_ns else ""
    return {
        "date": row.started_at[:16].replace("T", " "),
        "experiment": row.experiment,
        "status": row.status,
        "lengths": [None if ns is None else f"{ns / 1e9:.1f}" for ns in (row.wall_ns, row.training_ns)],
        "layer": f"{title(row.layer)}{share}" if row.layer else None,
        "links": [(name, quote(os.path.relpath(path, base))) for name, path in links if path.exists()],
    }


def _period(found: Sequence[Row]) -> str:
    days = sorted(row.started_at[:10] for row in found)
    return f", {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
