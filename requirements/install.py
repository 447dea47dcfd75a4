"""Installs locked requirements into this Python's environment, with visible progress and failures in one line.

Usage: python requirements/install.py LOCK... [-- PIP-OPTION...]

Standard library only: it runs before anything is installed.
"""

import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

LOG = Path(sys.prefix) / "setup.log"

UNREACHABLE = (
    "NewConnectionError|NameResolutionError|Name or service not known|Temporary failure in name resolution"
    "|Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError|MaxRetryError|IncompleteRead"
)
REASONS = (
    # what pip says, what a person should know, and what to do next
    (
        "DO NOT MATCH THE HASHES",
        "a downloaded file has a wrong checksum",
        "run it again; if it stays, do not install it",
    ),
    ("No space left on device", "the disk is full", "free 4 GB and run it again"),
    ("Permission denied", "a file cannot be written", "make this directory yours and run it again"),
    (UNREACHABLE, "the package index cannot be reached", "check the network or PIP_INDEX_URL, and run it again"),
    (
        "from versions: none",
        "the package index is not reached, or lacks a package",
        "check the network or PIP_INDEX_URL",
    ),
    ("No matching distribution found", "the package index lacks a package for this Python", "read the log"),
)


def main(arguments: list[str]) -> int:
    """Installs, while a second `make` at the same time waits. Returns the exit code."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    with (Path(sys.prefix) / ".setup-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return install(arguments[:cut], arguments[cut + 1 :])


def install(locks: list[str], options: list[str]) -> int:
    """Runs pip, writes what it says into the log, and shows which package it is at."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *options]
    # sdists among the requirements are built from what build.lock installed, not from what the network offers that day
    command += ["--progress-bar=off", "--no-build-isolation", *(["--require-hashes"] if locks else [])]
    command += [word for lock in locks for word in ("-r", lock)]
    wanted = sum(len(re.findall(r"(?m)^[\w.-]+==", Path(lock).read_text())) for lock in locks)
    start_s, seen, moving = time.monotonic(), 0, sys.stderr.isatty()
    with LOG.open("w") as log:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        pip = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        )
        for line in pip.stdout or ():
            log.write(line)
            match = re.match(r"\s*(Collecting|Downloading|Building|Installing)\s+(.{1,50})", line)
            if match:
                seen += match[1] == "Collecting"
                count = f" ({seen} of at most {wanted})" if match[1] == "Collecting" else ""
                text = f"[{time.monotonic() - start_s:4.0f} s] {match[1]} {match[2].strip()}{count}"[:78]
                print(f"\r\x1b[2K{text}" if moving else f"{text}\n", end="", file=sys.stderr, flush=True)
    what, took_s = " ".join(locks or options), time.monotonic() - start_s
    if moving:
        print("\r\x1b[2K", end="", file=sys.stderr)
    if pip.wait():
        why, remedy = reason(LOG.read_text(errors="replace"))
        print(f"dlobd: {what} was not installed: {why}. Next: {remedy} (log: {LOG}).", file=sys.stderr)
        return 3
    print(f"installed {what} in {took_s:.0f} s", file=sys.stderr)
    return 0


def reason(log: str) -> tuple[str, str]:
    """Why pip failed, and the next step."""
    for pattern, why, remedy in REASONS:
        if re.search(pattern, log):
            return why, remedy
    errors = re.findall(r"(?m)^ERROR: (.{1,200})", log)
    return (errors[0].rstrip(".") if errors else "pip failed"), "read the log"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
