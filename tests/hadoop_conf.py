"""Configuration directories of a Hadoop cluster."""

from __future__ import annotations

from pathlib import Path


def write(directory: Path, **sites: dict[str, str]) -> Path:
    """A configuration directory with `core`, `hdfs` and `yarn` properties."""
    for site in ("core", "hdfs", "yarn"):
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in sites.get(site, {}).items()
        )
        (directory / f"{site}-site.xml").write_text(f"<?xml version='1.0'?><configuration>{properties}</configuration>")
    return directory
