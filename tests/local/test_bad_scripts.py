"""Scripts that end, print or close what they should not: jobs/user.py runs each as a real process, without Spark.

The record must be complete as far as the process lived, and the reason names the cause.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.evidence import recorder
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import spans as expected
from dlobd.experiment import own_job
from dlobd.tracing import clock
from dlobd.trust import reasons

ENTRY = Path(__file__).parents[2] / "jobs" / "user.py"


@dataclass
class Ended:
    """The ended process, its record, and the reason of the run."""

    code: int
    out: bytes
    err: bytes
    bundle: Bundle
    driver: recorder.RecordedProcess
    reason: str | None
    defects: list[str]


def ended(tmp_path: Path, text: str, mode: str = "client", **options: Any) -> Ended:
    """Run a script as spark-submit does, and put its record into a bundle."""
    script = tmp_path / "script.py"
    script.write_text(text)
    job = own_job.from_script(str(script), [], [f"deploy_mode={mode}"])
    bundle = Bundle(tmp_path / "run")
    for part in files.PARTS:
        (bundle.path / part).mkdir(parents=True)
    exec_ns = clock.monotonic_ns()
    command = [sys.executable, str(ENTRY), "tfos", "run/spans/driver", str(script)]
    with (bundle.path / files.DRIVER_STDOUT).open("wb") as out, (bundle.path / files.DRIVER_STDERR).open("wb") as err:
        done = subprocess.run(command, stdout=out, stderr=err, timeout=110, cwd=tmp_path, **options)
    # the JVM of spark-submit exits like a shell
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    times = {"exec_ns": exec_ns, "started_ns": exec_ns, "exit_ns": clock.monotonic_ns(), "exit_code": code, "pid": 1}
    anchors = [asdict(clock.anchor())]
    bundle.add_json(
        times | {"application_id": None, "ended_by": "", "anchors": anchors, "diagnostics": ""}, files.WINDOW
    )
    bundle.add_json(asdict(job), files.JOB)
    bundle.redact_driver_logs()
    evidence = Evidence(bundle.path)
    reason = reasons.ended_badly(evidence, job) or reasons.without_spark(evidence)
    (driver,) = [process for process in recorder.read_all(bundle.spans) if process.process.role == "driver"]
    defects = [f"{one.what} {one.how}" for one in expected.absences(evidence)]
    output = [(bundle.path / name).read_bytes() for name in (files.DRIVER_STDOUT, files.DRIVER_STDERR)]
    return Ended(code, *output, bundle, driver, reason, defects)


WITHOUT_SPARK = "the script ended without a SparkContext: Spark and YARN took no part in the job"

ENDS = {
    "first line": ("raise SystemExit", 0, WITHOUT_SPARK),
    "first line with a code": ("import sys; sys.exit(7)", 7, "the script exited with code 7"),
    "empty": ("", 0, WITHOUT_SPARK),
    "error in a thread": (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
        0,
        WITHOUT_SPARK,
    ),
    "exit in a thread": (
        "import threading, sys\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start()\nt.join()",
        0,
        WITHOUT_SPARK,
    ),
    "os._exit": ("import os\nprint('x', flush=True)\nos._exit(0)", 0, WITHOUT_SPARK),
    "os._exit with a code": ("import os; os._exit(9)", 9, "the script exited with code 9"),
    "os._exit in a thread": (
        "import os, threading, time\nthreading.Thread(target=os._exit, args=(9,)).start()\ntime.sleep(60)",
        9,
        "the script exited with code 9",
    ),
    "kill -9": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        137,
        "the driver's Python was killed by signal 9 (SIGKILL)",
    ),
    "abort": ("import os; os.abort()", 134, "the driver's Python was killed by signal 6 (SIGABRT)"),
    "segmentation fault": (
        "import ctypes; ctypes.string_at(0)",
        139,
        "the driver's Python was killed by signal 11 (SIGSEGV)",
    ),
    "terminated": (
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        143,
        "the driver's Python was killed by signal 15 (SIGTERM)",
    ),
    "bytes that are no text": (
        "import sys\nsys.stdout.buffer.write(b'caf\\xe9\\n')\nraise ValueError('caf\\udce9 \\x1b[31m red')",
        1,
        "ValueError: caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}[31m red",
    ),
}


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("how", ENDS)
def test_a_script_that_ends_early_has_a_reason_and_a_record(tmp_path: Path, how: str, mode: str) -> None:
    text, code, reason = ENDS[how]
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    done = ended(tmp_path, text, mode)
    assert (done.code, done.reason) == (code, reason)
    (user,) = done.driver.named("user code")
    assert user.truncated == (code > 128)
    assert done.defects == []
    json.dumps(done.reason).encode()


OTHERS_FILE = """
import os, subprocess, sys, time
{close}
users = open("users.txt", "wb", buffering=0)
time.sleep(1.2)
users.write(b"mine")
os.system("echo by a child")
try:
    print("to stdout", flush=True)
except (OSError, ValueError):
    pass
time.sleep(0.8)
"""

CLOSES = {
    "stdout": "os.close(1)",
    "all standard descriptors": "os.closerange(0, 3)",
    "sys.stdout": "sys.stdout.close()",
    "as a daemon": "time.sleep(0.8); os.closerange(0, 256)",
    "all but the standard descriptors": "time.sleep(0.8); os.closerange(3, 256)",
    "by another file": "time.sleep(0.8); [os.dup2(os.open(os.devnull, os.O_RDONLY), n) for n in range(3, 9)]",
}


@pytest.mark.parametrize("what", CLOSES)
def test_closed_descriptors_mix_no_files(tmp_path: Path, what: str) -> None:
    """A descriptor of the record may not become one of the user's files, nor the reverse."""
    done = ended(tmp_path, OTHERS_FILE.replace("{close}", CLOSES[what]))
    assert done.code == 0
    text = (tmp_path / "users.txt").read_bytes()
    assert text.startswith(b"mine") or text.endswith(b"mine")
    assert b'"k":' not in text + done.out + done.err
    assert done.defects == []
    assert done.driver.bad_lines == 0
    assert not done.driver.named("user code")[0].truncated


def test_another_working_directory_changes_no_file_of_the_record(tmp_path: Path) -> None:
    """Also of a process that the script forks afterwards."""
    (tmp_path / "other").mkdir()
    text = "import os\nos.chdir('other')\nif os.fork() == 0:\n    import decimal\n    os._exit(0)\nos.wait()\n"
    done = ended(tmp_path, text)
    assert (done.code, done.defects) == (0, [])
    assert list((tmp_path / "other").iterdir()) == []
    assert done.driver.path.parent == done.bundle.spans / "driver"


LATE = """
import atexit, threading, time
atexit.register(time.sleep, 0.2)
main = threading.main_thread()
def work():
    main.join(60)
    time.sleep(0.3)
threading.Thread(target=work).start()
"""


def test_threads_and_exit_handlers_are_user_code(tmp_path: Path) -> None:
    """Python waits for them after the last line."""
    done = ended(tmp_path, LATE)
    (user,) = done.driver.named("user code")
    last_ns = done.driver.last_ns
    assert not user.truncated
    assert user.end_ns - user.start_ns >= 500_000_000
    assert user.end_ns <= last_ns
    assert done.defects == []


def test_a_pool_of_threads_that_the_script_leaves_open_ends(tmp_path: Path) -> None:
    text = (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor()\npool.submit(print, 'done')\n"
    )
    done = ended(tmp_path, text)
    assert (done.code, done.out, done.defects) == (0, b"done\n", [])


def test_the_message_of_an_exception_may_have_any_length(tmp_path: Path) -> None:
    done = ended(tmp_path, "raise ValueError('no ' * 50_000_000)")
    assert done.code == 1
    assert done.reason is not None
    assert done.reason.startswith("ValueError: no no no")
    assert len(done.reason) <= reasons.MAX_REASON_CHARACTERS
    assert sum(path.stat().st_size for path in done.bundle.spans.rglob("*.jsonl")) < 1_000_000


@pytest.mark.parametrize("line", ["x" * 99 + "\\n", "x" * 100])
def test_a_gigabyte_of_output_costs_little_memory(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a tenth of the size and of the limits: begin and end are read, and the bundle has all of it."""
    monkeypatch.setattr(reading, "OUTPUT_BYTES", reading.OUTPUT_BYTES // 10)
    monkeypatch.setattr(reading, "LIMIT_BYTES", reading.LIMIT_BYTES // 10)
    text = "import sys\nfor _ in range(1000):\n    for out in sys.stdout, sys.stderr:\n"
    text += f"        out.write('{line}' * 1000)\n"
    began_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    done = ended(tmp_path, f"print('first')\n{text}raise KeyError('the last line')\n")
    assert done.reason == "KeyError: 'the last line'"
    assert len(done.out) > 99_000_000
    assert done.out.startswith(b"first\n")
    assert list(reading.damage(done.bundle.path)) == []
    read = reading.text(done.bundle.path / files.DRIVER_STDOUT)
    assert read.startswith("first\n")
    assert len(read) == 2 * reading.OUTPUT_BYTES + 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < began_bytes + 600_000_000


def test_a_process_that_ignores_signals_is_still_recorded(tmp_path: Path) -> None:
    """SIGINT is ignored by the script, as under nohup; the record is complete."""
    text = "import signal, os\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.kill(os.getpid(), signal.SIGINT)\n"
    done = ended(tmp_path, text, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert (done.code, done.reason, done.defects) == (0, WITHOUT_SPARK, [])
    assert time.monotonic_ns() > done.driver.last_ns
    assert os.getpid() != done.driver.process.pid
