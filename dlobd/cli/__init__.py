"""The `dlobd` command. Each verb has a file that parses options, calls one function, prints, and returns an exit code.

Verbs import the rest of dlobd when they are called: `dlobd --help` loads neither pandas nor Spark.
"""

from dlobd.cli.main import main

__all__ = ["main"]
