"""Makes two sections of docs/results.md again from the figures that are stored beside it; measures nothing.

python -m bench.republish
"""

from __future__ import annotations

import json
from pathlib import Path

import bench.__main__ as launchers
from bench import channels, publish

DOCS = Path("docs")


def main(docs: Path = DOCS) -> None:
    """Write both sections."""
    found = json.loads((docs / f"{launchers.NAME}.json").read_text())
    publish.publish(docs, launchers.NAME, found["facts"], launchers.tables(found["tables"]))
    found = json.loads((docs / f"{channels.NAME}.json").read_text())
    publish.publish(docs, channels.NAME, found["facts"], channels.tables(found["seconds"]))


if __name__ == "__main__":
    main()
