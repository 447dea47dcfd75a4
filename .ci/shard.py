"""Prints the shard of tests/full that CI runs beside `make test`: whose subject changed, else one in rotation."""

import datetime
import subprocess
import sys
from pathlib import Path

SUBJECTS = {
    "ways": ("dlobd/launchers/", "dlobd/schedulers/", "dlobd/workloads/", "dlobd/importers/", "dlobd/places/",
             "dlobd/by_hand.py", "dlobd/gather.py", "dlobd/hadoop_web.py", "dlobd/packing.py", "tests/full/ways/"),
    "faults": ("dlobd/cluster/", "dlobd/runner.py", "dlobd/submit.py", "dlobd/collect.py", "dlobd/record.py",
               "dlobd/checks.py", "dlobd/causes.py", "dlobd/notices.py", "yarn/", "tests/full/faults/"),
}  # fmt: skip


def main() -> None:
    """The subject with the most changed files of the last commit; a tie or none is decided by the day."""
    top = Path(__file__).resolve().parent.parent
    shards = [name for name in SUBJECTS if any((top / "tests" / "full" / name).glob("test_*.py"))]
    if not shards:
        return
    command = ["git", "-C", str(top), "diff", "--name-only", "HEAD~1", "HEAD"]
    changed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    score = {name: sum(path.startswith(SUBJECTS[name]) for path in changed) for name in shards}
    day = datetime.datetime.now(datetime.UTC).toordinal()
    turn = shards[day % len(shards)]
    best = max(shards, key=lambda name: (score[name], name == turn))
    sys.stdout.write(f"{best}\n")


if __name__ == "__main__":
    main()
