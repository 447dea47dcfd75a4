"""`python -m tests.guest run [options] -- COMMAND...`: a command on a machine with Soft-RoCE devices.

Exits with the command's status; 124 at the deadline, 125 if the guest failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from .machine import GuestError, Machine, TookTooLongError, run

TOOK_TOO_LONG = 124
FAILED = 125
"""As `timeout` has them; `env` and containers fail with 125 too."""


def main() -> int:
    """Runs a command in the guest; its output is shown as it comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.guest", description=(__doc__ or "").strip())
    actions = parser.add_subparsers(required=True)
    action = actions.add_parser("run", help="run a command in a fresh guest")
    action.add_argument("--memory-mb", type=int, default=Machine().memory_mb)
    action.add_argument("--cpus", type=int, default=Machine().cpus)
    action.add_argument("--accelerator", choices=("tcg", "kvm"), default=Machine().accelerator)
    action.add_argument("--out", type=Path, help="a directory that the guest writes to, at the same path")
    action.add_argument("--deadline-s", type=float, default=300.0, help="for all of it (default: %(default)s)")
    action.add_argument("command", nargs="+", metavar="COMMAND")
    asked = parser.parse_args()
    if asked.out is not None and not asked.out.is_dir():
        parser.error(f"--out {asked.out}: there is no such directory")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ended = run(
            asked.command,
            Machine(asked.memory_mb, asked.cpus, asked.accelerator),
            deadline_s=asked.deadline_s,
            out=asked.out,
            live=(sys.stdout.buffer, sys.stderr.buffer),
        )
    except GuestError as error:
        sys.stderr.write(f"{error}\n")
        return TOOK_TOO_LONG if isinstance(error, TookTooLongError) else FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return ended.status


if __name__ == "__main__":
    sys.exit(main())
