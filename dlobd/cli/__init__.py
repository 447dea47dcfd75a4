"""The `dlobd` command, one file a verb: parse, call one function, print, exit code.

Verbs import what they need when they are called: `dlobd --help` loads neither pandas nor Spark.
"""

from __future__ import annotations

from dlobd.cli.main import main

__all__ = ["main"]
