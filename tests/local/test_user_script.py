"""jobs/user.py records a script. The tests start it without Spark; tests/contract compares it with plain Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.recorded import read_all

ENTRY = Path(__file__).parents[2] / "jobs" / "user.py"


def started(tmp_path: Path, text: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """The ended process, and what the driver recorded."""
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    script.write_text(text)
    (folder / "beside.py").write_text("answer = 42\n")
    done = subprocess.run(
        [sys.executable, str(ENTRY), "tfos", str(tmp_path / "spans"), str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=tmp_path,
    )
    (process,) = read_all(tmp_path / "spans")
    return done, process


def test_the_script_is_the_main_module(tmp_path: Path) -> None:
    done, process = started(
        tmp_path,
        """
import json, os, sys
import beside
from pyspark import cloudpickle

def own(x):
    return x + beside.answer

class Thing:
    pass

os.chdir("/")
by_value = b"script" not in cloudpickle.dumps(own) or b"_make_function" in cloudpickle.dumps(own)
main = sys.modules["__main__"]
print(json.dumps([__name__, sys.argv[1:], sys.path[0], __file__, own.__module__, by_value, main.own(1),
                  cloudpickle.loads(cloudpickle.dumps(Thing)).__name__]))
""",
        "--a",
        "b",
    )
    assert done.returncode == 0, done.stderr
    folder = str(tmp_path / "mine")
    script = str(tmp_path / "mine" / "script.py")
    assert json.loads(done.stdout) == ["__main__", ["--a", "b"], folder, script, "__main__", True, 43, "Thing"]
    assert process.process.role == "driver"
    (user,) = process.named("user code")
    assert (user.layer, user.truncated) == ("user", False)
    (imported,) = process.named("import pyspark")
    assert user.start_ns < imported.start_ns < imported.end_ns < user.end_ns


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import sys; sys.exit(3)", "the script exited with code 3"),
        ("import sys; sys.exit('no data')", "no data"),
        ("raise SystemExit", None),
        ("def f():\n    raise ValueError('bad\\nvalue')\nf()", "ValueError: bad"),
        ("x = (", "SyntaxError: '(' was never closed"),
    ],
)
def test_the_cause_of_a_failure_is_recorded_in_one_line(tmp_path: Path, text: str, cause: str | None) -> None:
    _, process = started(tmp_path, text)
    found = process.instant("job failed")
    assert (found.attrs["cause"] if found else None) == cause
    assert not process.named("user code")[0].truncated


def test_what_spark_says_of_a_task_is_the_cause(tmp_path: Path) -> None:
    spark = (
        'Job aborted: Traceback (most recent call last):\\n  File "w.py", line 1\\nKeyError: 7\\n\\n\\tat org.apache'
    )
    _, process = started(tmp_path, f"raise RuntimeError('{spark}')")
    assert process.instant("job failed").attrs["cause"] == "KeyError: 7"
