"""The files of a manual submission, run by a shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dlobd.run import manual_submission


def test_the_printed_line_shows_what_spark_submit_says_and_exits_as_it_does(tmp_path: Path) -> None:
    """Its stderr on the terminal and in the bundle, whose path may need quotes; in a shell that is not bash."""
    logs = tmp_path / "it's mine"
    logs.mkdir()
    submits = "sh -c 'echo out; echo Submitted application application_1_2 >&2; exit 7'"
    done = subprocess.run(
        ["sh", "-c", manual_submission.logging_line(submits, logs)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "Submitted application application_1_2\n")
    assert (logs / "driver.stderr").read_text() == done.stderr
    assert (logs / "driver.stdout").read_text() == "out\n"
