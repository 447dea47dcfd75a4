"""jobs/user.py runs a script as Python would. The tests start it without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlobd.evidence import recorder

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
    (process,) = recorder.read_all(tmp_path / "spans")
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
    ("text", "code", "cause", "said"),
    [
        ("import sys; sys.exit(3)", 3, "the script exited with code 3", ""),
        ("import sys; sys.exit('no data')", 1, "no data", "no data"),
        ("raise SystemExit", 0, None, ""),
        ("def f():\n    raise ValueError('bad\\nvalue')\nf()", 1, "ValueError: bad", "ValueError: bad"),
        ("x = (", 1, "SyntaxError: '(' was never closed", "SyntaxError"),
    ],
)
def test_the_script_ends_as_it_does(tmp_path: Path, text: str, code: int, cause: str | None, said: str) -> None:
    """Its exit code is the process's; its traceback is its own; the cause is recorded in one line."""
    done, process = started(tmp_path, text)
    assert done.returncode == code
    assert said in done.stderr
    assert "workloads/own.py" not in done.stderr
    if "def f" in text:
        assert done.stderr.startswith('Traceback (most recent call last):\n  File "' + str(tmp_path / "mine/script.py"))
    found = process.instant("job failed")
    assert (found.attrs["cause"] if found else None) == cause
    assert not process.named("user code")[0].truncated


def test_what_spark_says_of_a_task_is_the_cause(tmp_path: Path) -> None:
    spark = (
        'Job aborted: Traceback (most recent call last):\\n  File "w.py", line 1\\nKeyError: 7\\n\\n\\tat org.apache'
    )
    _, process = started(tmp_path, f"raise RuntimeError('{spark}')")
    assert process.instant("job failed").attrs["cause"] == "KeyError: 7"


def test_processes_of_the_script_are_its_children(tmp_path: Path) -> None:
    """A pool in a process of its own, as libraries have: the driver is one process, and the rest are its children."""
    folder = tmp_path / "mine"
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(
        "import multiprocessing\nfrom multiprocessing.pool import Pool\n"
        "def prepare(n):\n    import time, pandas\n    time.sleep(1.2)\n    return n\n"
        "def step(results):\n    with Pool(2) as pool:\n        results.put(pool.map(prepare, range(4)))\n"
        "if __name__ == '__main__':\n    results = multiprocessing.Queue()\n"
        "    process = multiprocessing.Process(target=step, args=(results,))\n"
        "    process.start()\n    assert results.get() == [0, 1, 2, 3]\n    process.join()\n"
    )
    command = [sys.executable, str(ENTRY), "tfos", str(tmp_path / "spans"), str(script)]
    subprocess.run(command, check=True, timeout=110)
    driver, *children = recorder.read_all(tmp_path / "spans")
    assert driver.process.role == "driver"
    assert {child.process.role for child in children} == {"child"}
    assert driver.process.pid not in {child.parent for child in children}  # the process between them recorded nothing
    assert not any(i.attrs.get("package") == "pandas" for i in driver.instants)
