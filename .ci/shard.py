"""Prints in one line the shards of tests/full that CI runs after `make test`; stderr explains the choice.

A shard belongs to the rooms that it tests. Shards with a changed room run, those with most changed lines first, as long
as their measured minutes fit into the time that `.ci/run` has left; the others are only listed. If no room changed, one
shard runs in rotation.
"""

import datetime
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent

LIMIT_MINUTES = 75
"""Timeout of `.ci/run`."""

SPARE_MINUTES = 7
"""Reserve for a machine that is slower than the machine of the measured minutes."""

MAKE_TEST_MINUTES = 24
"""Duration of `make test` with its set-up, on an idle machine with two cores."""

MINUTES = {
    "ways": 43,
    "clusters": 20,
    "own": 35,
    "submit": 30,
    "frameworks": 27,
    "faults": 43,
    "guest": 6,
    "long": 6,
    "guest_spark": 25,
    "compose": 36,
    "page": 2,
    "damage": 37,
    "docs": 30,
}
"""Durations of the shards, measured on the same machine. A shard that is not listed takes all of the remaining time.
`ways` includes a reserve for a slow `make test`. Parts of `ways`, `clusters` and `faults`, and
`docs` are estimates."""

ROOMS = {
    "ways": """
        dlobd/attribution/ dlobd/axes.py dlobd/channel.py dlobd/columns.py dlobd/evidence/ dlobd/experiment/
        dlobd/faults/ dlobd/fields.py dlobd/findings/ dlobd/job/ dlobd/marks.py dlobd/measures/
        dlobd/memory.py dlobd/micro/ dlobd/network/
        dlobd/recompute/ dlobd/record/ dlobd/registry.py dlobd/run/schedulers/ dlobd/schema.py dlobd/selftest/
        dlobd/spans.py dlobd/timeline/ dlobd/tracing/ dlobd/user_file.py tests/full/ways/
    """,
    "clusters": """
        dlobd/compare/ dlobd/hadoop/ dlobd/installation.py dlobd/job/user/ dlobd/report/ dlobd/run/
        tests/full/clusters/
    """,
    "own": "dlobd/job/user/ dlobd/marks.py dlobd/run/ dlobd/timeline/ jobs/ tests/foreign/ tests/full/own/",
    "frameworks": "dlobd/job/user/ tests/full/frameworks/",
    "submit": "dlobd/experiment/ dlobd/hadoop/ dlobd/run/ jobs/ tests/full/submit/",
    "faults": """
        dlobd/trust/ dlobd/bundle/ dlobd/cli/ dlobd/errors.py dlobd/hadoop/ dlobd/job/launchers/ dlobd/layers.py
        dlobd/paths.py dlobd/process_id.py dlobd/run/ yarn/ tests/full/faults/
    """,
    "long": """
        dlobd/attribution/ dlobd/bundle/ dlobd/columns.py dlobd/evidence/ dlobd/measures/ dlobd/recompute/
        dlobd/tracing/ tests/full/long/
    """,
    "guest": "dlobd/network/ dlobd/run/ tests/full/guest/ tests/guest/",
    "guest_spark": "dlobd/network/ tests/full/guest_spark/ tests/guest/",
    "compose": """
        .dockerignore docker/ dlobd/hadoop/ dlobd/installation.py dlobd/run/place/ tests/compose/
        tests/full/compose/
    """,
    "damage": "dlobd/attribution/ dlobd/bundle/ dlobd/report/ tests/data/ tests/full/damage/",
    "docs": "README.md docs/ dlobd/cli/ tests/full/docs/",
    "page": "dlobd/cli/report.py dlobd/layers.py dlobd/report/ tests/full/page/",
}
"""Mapping of shards to the rooms that they test, separated by blanks. A unit test checks that every room has a
shard."""


def changed_lines(base: str) -> dict[str, int]:
    """Return paths with the number of lines added and removed since `base`; a moved file counts at its new path."""
    command = ["git", "-C", str(TOP), "diff", "--numstat", "--no-renames", base, "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {path: sum(int(count) for count in counts if count.isdecimal()) for *counts, path in rows}


def landed() -> str:
    """Return the commit at which this branch left main; in a clone of main only, the parent."""
    for name in (os.environ.get("DLOBD_CI_BASE", ""), "origin/main"):
        command = ["git", "-C", str(TOP), "merge-base", "HEAD", name]
        if name and (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode == 0:
            base = done.stdout.strip()
            if base != _commit("HEAD"):
                return base
    return _first_of_today()


def _first_of_today() -> str:
    """Return the last commit that is at least four hours older than HEAD, because a submission takes less time."""
    newest = subprocess.run(
        ["git", "-C", str(TOP), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not newest:
        return "HEAD"
    before = int(newest) - 4 * 3600
    command = ["git", "-C", str(TOP), "rev-list", "-1", f"--before=@{before}", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found or _commit("HEAD~1") or "HEAD"


def _commit(name: str) -> str:
    command = ["git", "-C", str(TOP), "rev-parse", "--verify", "--quiet", name]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def chosen(changed: dict[str, int], shards: list[str], day: int) -> tuple[list[str], list[str]]:
    """Return the shards to run, and the changed shards that do not fit; the largest changes come first."""
    score = {
        name: sum(lines for path, lines in changed.items() if path.startswith(tuple(ROOMS.get(name, "").split())))
        for name in shards
    }
    wanted = sorted((name for name in shards if score[name]), key=lambda name: -score[name])
    wanted = wanted or [shards[day % len(shards)]]
    run: list[str] = []
    left = LIMIT_MINUTES - SPARE_MINUTES - MAKE_TEST_MINUTES
    for name in wanted:
        minutes = MINUTES.get(name, left)
        if minutes <= left or not run:
            run.append(name)
            left -= minutes
    return run, [name for name in wanted if name not in run]


def main() -> None:
    """Print the shards on stdout, and on stderr the shards that do not fit."""
    shards = sorted(path.name for path in (TOP / "tests" / "full").iterdir() if list(path.glob("test_*.py")))
    if not shards:
        return
    base = landed()
    day = datetime.datetime.now(datetime.UTC).toordinal()
    run, rest = chosen(changed_lines(base), shards, day)
    sys.stderr.write(f"shards since {base[:12]}: {' '.join(run)}\n")
    if rest:
        sys.stderr.write(f"changed too, and not run for lack of time: {' '.join(rest)}; make test-full SHARD=NAME\n")
    sys.stdout.write(" ".join(run) + "\n")


if __name__ == "__main__":
    main()
