"""Scripts that end, print or close what they should not: jobs/user.py runs each as a real process, without Spark."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.evidence import recorder
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import spans
from dlobd.experiment import own_job
from dlobd.record.run import Failure
from dlobd.tracing import clock
from dlobd.trust import reasons
from tests.recorded import read_all

ENTRY = Path(__file__).parents[2] / "jobs" / "user.py"


@dataclass
class Ended:
    """The ended process, the record of it, and the reason of the run."""

    code: int
    out: bytes
    err: bytes
    bundle: Bundle
    user: recorder.RecordedSpan
    reason: str | None
    defects: list[str]


def ended(tmp_path: Path, text: str, mode: str = "client") -> Ended:
    """Run a script as spark-submit does, and put the record into a bundle."""
    script, bundle = tmp_path / "script.py", Bundle(tmp_path / "run")
    script.write_text(text)
    job = own_job.from_script(str(script), [], [f"deploy_mode={mode}"])
    for part in files.PARTS:
        (bundle.path / part).mkdir(parents=True)
    begin_ns, outputs = (
        clock.monotonic_ns(),
        [bundle.path / name for name in (files.DRIVER_STDOUT, files.DRIVER_STDERR)],
    )
    command = [sys.executable, str(ENTRY), "tfos", "run/spans/driver", str(script)]
    with outputs[0].open("wb") as out, outputs[1].open("wb") as err:
        code = subprocess.run(command, stdout=out, stderr=err, timeout=110, cwd=tmp_path).returncode
    code = 128 - code if code < 0 else code  # the JVM of spark-submit exits like a shell
    window = {"exec_ns": begin_ns, "started_ns": begin_ns, "exit_ns": clock.monotonic_ns(), "exit_code": code, "pid": 1}
    window |= {"application_id": None, "ended_by": "", "anchors": [asdict(clock.anchor())], "diagnostics": ""}
    bundle.add_json(window, files.WINDOW)
    bundle.add_json(asdict(job), files.JOB)
    bundle.redact_driver_logs()
    evidence = Evidence(bundle.path)
    reason = reasons.ended_badly(evidence, job) or reasons.without_spark(evidence)
    (driver,) = [process for process in read_all(bundle.spans) if process.process.role == "driver"]
    (user,) = driver.named("user code")
    defects = [f"{one.what} {one.how}" for one in spans.absences(evidence)]
    return Ended(code, *(path.read_bytes() for path in outputs), bundle, user, reason, defects)


WITHOUT_SPARK = reasons.WITHOUT_SPARK
THREAD = "import os, sys, threading, time\nthreading.Thread(target={}).start()\ntime.sleep({})"
KILLED = "the driver's Python was killed by signal"

ENDS = {
    "first line": ("raise SystemExit", 0, WITHOUT_SPARK),
    "first line with a code": ("import sys; sys.exit(7)", 7, "the script exited with code 7"),
    "empty": ("", 0, WITHOUT_SPARK),
    "error in a thread": (THREAD.format("lambda: 1 / 0", 0), 0, WITHOUT_SPARK),
    "exit in a thread": (THREAD.format("sys.exit, args=(3,)", 0), 0, WITHOUT_SPARK),
    "os._exit": ("import os\nprint('x', flush=True)\nos._exit(0)", 0, WITHOUT_SPARK),
    "os._exit in a thread": (THREAD.format("os._exit, args=(9,)", 60), 9, "the script exited with code 9"),
    "kill -9": ("import os; os.kill(os.getpid(), 9)", 137, f"{KILLED} 9 (SIGKILL)"),
    "kill": ("import os; os.kill(os.getpid(), 15)", 143, f"{KILLED} 15 (SIGTERM)"),
    "abort": ("import os; os.abort()", 134, f"{KILLED} 6 (SIGABRT)"),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", 139, f"{KILLED} 11 (SIGSEGV)"),
    "bytes that are no text": (
        "import sys\nsys.stdout.buffer.write(b'caf\\xe9\\n')\nraise ValueError('caf\\udce9 \\x1b[31m red')",
        1,
        "ValueError: caf\ufffd \ufffd[31m red",
    ),
    "a long message": ("raise ValueError('no ' * 50_000_000)", 1, f"ValueError:{' no' * 95} ..."),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor as Pool\npool = Pool()\npool.submit(print, 'done')",
        0,
        WITHOUT_SPARK,
    ),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_script_that_ends_badly_has_a_reason_and_a_record(tmp_path: Path, how: str, mode: str) -> None:
    text, code, reason = ENDS[how]
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    done = ended(tmp_path, text, mode)
    assert (done.code, done.reason, done.defects) == (code, reason, [])
    assert done.user.truncated == (code > 128)
    json.dumps(done.reason, ensure_ascii=False).encode()
    assert sum(path.stat().st_size for path in done.bundle.spans.rglob("*.jsonl")) < 1_000_000


ERRORS = {
    "a handled error": ("def f():\n  raise ValueError('no')\ntry: 1 / 0\nexcept Exception: f()", 2, "ValueError: no"),
    "a library": (
        "import json\n\njson.loads('')",
        3,
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ),
    "a long message": ("raise KeyError('a\\nb' * 9)", 1, "KeyError: " + repr("a\nb" * 9)),
}


@pytest.mark.parametrize("how", ERRORS)
def test_a_failure_has_line_traceback_and_log(tmp_path: Path, how: str) -> None:
    text, line, error = ERRORS[how]
    done = ended(tmp_path, text)
    job = own_job.from_script(str(tmp_path / "script.py"), [], [])
    found = reasons.failure_facts(Evidence(done.bundle.path), job, "failed", str(done.reason), (), ())
    assert (found.file, found.line, found.log) == (job.script, line, files.DRIVER_STDERR)
    assert found.traceback[0].startswith(f'  File "{job.script}", line ')
    assert found.traceback[-1] == error
    assert (found.phase, found.java_cause, found.next_step) == ("start-up", None, None)


def test_a_script_without_a_spark_context_has_exactly_one_next_step(tmp_path: Path) -> None:
    done = ended(tmp_path, "print('hello')")
    job = own_job.from_script(str(tmp_path / "script.py"), [], [])
    found = reasons.failure_facts(Evidence(done.bundle.path), job, "invalid", str(done.reason), (), ())
    assert done.reason == "Your script never started a SparkContext, so there is nothing to break down"
    assert found == Failure(next_step="check that it calls SparkSession.builder.getOrCreate()", no_spark=True)


CLOSES = {
    "stdout": "os.close(1)",
    "all standard descriptors": "os.closerange(0, 3)",
    "sys.stdout": "sys.stdout.close()",
    "as a daemon": "time.sleep(0.8); os.closerange(0, 256)",
    "by another file": "time.sleep(0.8); [os.dup2(os.open(os.devnull, os.O_RDONLY), n) for n in range(3, 9)]",
}

USERS_FILE = """
import os, sys, time
{}
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


@pytest.mark.parametrize("what", CLOSES)
def test_closed_descriptors_mix_no_files(tmp_path: Path, what: str) -> None:
    """A descriptor of the record may not become one of the user's files, nor the reverse."""
    done = ended(tmp_path, USERS_FILE.format(CLOSES[what]))
    assert (done.code, done.defects, done.user.truncated) == (0, [], False)
    users = (tmp_path / "users.txt").read_bytes()
    assert b"mine" in users
    assert b'"k":' not in users + done.out + done.err


def test_another_working_directory_changes_no_file_of_the_record(tmp_path: Path) -> None:
    """Also of a process that the script forks afterwards."""
    (tmp_path / "other").mkdir()
    done = ended(
        tmp_path, "import os\nos.chdir('other')\nif not os.fork():\n    import decimal\n    os._exit(0)\nos.wait()"
    )
    assert (done.code, done.defects, list((tmp_path / "other").iterdir())) == (0, [], [])


def test_threads_and_exit_handlers_are_user_code(tmp_path: Path) -> None:
    """Python waits for them after the last line."""
    work = "lambda: (threading.main_thread().join(60), time.sleep(0.3))"
    done = ended(tmp_path, f"import atexit, time\natexit.register(time.sleep, 0.2)\n{THREAD.format(work, 0)}")
    assert done.user.end_ns - done.user.start_ns >= 500_000_000
    assert done.defects == []


@pytest.mark.parametrize("line", ["x" * 99 + "\\n", "x" * 100])
def test_a_gigabyte_of_output_costs_little_memory(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a tenth of the size and of the limits: begin and end are read, and the bundle has all of it."""
    for name in ("OUTPUT_BYTES", "LIMIT_BYTES"):
        monkeypatch.setattr(reading, name, getattr(reading, name) // 10)
    loop = "import sys\nprint('first')\nfor out in [sys.stdout, sys.stderr] * 1000:\n"
    done = ended(tmp_path, f"{loop}    out.write('{line}' * 1000)\nraise KeyError('the last line')\n")
    assert done.reason == "KeyError: 'the last line'"
    assert len(done.out) > 99_000_000
    assert list(reading.damage(done.bundle.path)) == []
    read = reading.text(done.bundle.path / files.DRIVER_STDOUT)
    assert read.startswith("first\n")
    assert len(read) == 2 * reading.OUTPUT_BYTES + 1
