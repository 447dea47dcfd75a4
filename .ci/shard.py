"""Prints the shard of tests/full that CI runs beside `make test`: whose subject changed, else one in rotation."""

import datetime
import subprocess
import sys
from pathlib import Path

SUBJECTS = {
    "ways": ("dlobd/job/launchers/", "dlobd/run/schedulers/", "dlobd/job/training/", "dlobd/attribution/importers/", "dlobd/run/deploy/",
             "dlobd/run/by_hand.py", "dlobd/run/collect/external.py", "dlobd/hadoop/web.py", "dlobd/run/packing.py", "tests/full/ways/"),
    "faults": ("dlobd/hadoop/embedded/", "dlobd/run/runner.py", "dlobd/run/submit.py", "dlobd/run/collect/embedded.py", "dlobd/attribution/record.py",
               "dlobd/attribution/checks.py", "dlobd/attribution/reasons.py", "dlobd/attribution/warnings.py", "yarn/", "tests/full/faults/"),
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
