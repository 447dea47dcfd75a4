"""The sampler itself, as the process that it is, beside real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlobd.evidence import resources
from dlobd.evidence.resources import Counter, SampledHost
from dlobd.run.resource_sampler import Assignment, ProcessTree, sampling
from dlobd.tracing import clock

pytestmark = pytest.mark.slow

BURN = """
import sys, time
until = float(sys.argv[1])
while time.process_time() < until:
    pass
print(int(time.process_time() * 1e9), flush=True)
sys.stdin.read()
"""
"""Burns CPU time, not wall time; tells how much it had; ends with its stdin."""
PERIOD_NS = 50_000_000


def assignment(**changed: Any) -> Assignment:
    return Assignment(
        **{"roots": {"dlobd": os.getpid()}, "machine": "m", "deadline_s": 60.0, "period_ns": PERIOD_NS} | changed
    )


def sampled(path: Path) -> SampledHost:
    found = resources.read(path.read_text().splitlines())
    assert found is not None
    return found


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "dlobd.run.resource_sampler" in child.cmdline()]


def test_a_process_that_burns_cpu_has_what_it_says_itself(tmp_path: Path) -> None:
    """To three of the kernel's ticks: user, system, and saying it; the machine was busy for at least as long."""
    with sampling(tmp_path / "r", assignment()) as failed:
        burner = subprocess.Popen(
            [sys.executable, "-c", BURN, "0.5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        own_ns, told_ns = int(burner.stdout.readline()), clock.monotonic_ns()
        while sampled(tmp_path / "r").samples[-1].at_ns <= told_ns:
            time.sleep(0.02)  # it does nothing until it has been sampled
        burner.communicate()
    assert failed == []
    found = sampled(tmp_path / "r")
    process = next(one for one in found.processes if one.pid == burner.pid)
    after = next(sample for sample in process.samples if sample.at_ns > told_ns)
    assert abs(after.cpu_ns - own_ns) <= 3 * clock.tick_ns()
    assert process.parent == os.getpid()
    assert after.rss_bytes > 1_000_000
    busy = Counter((sample.at_ns, sample.cpu_busy_ns) for sample in found.samples)
    first_ns, last_ns = found.samples[0].at_ns, found.samples[-1].at_ns
    cores = os.cpu_count() or 1
    assert busy.between(first_ns, last_ns) >= own_ns - 2 * cores * clock.tick_ns()
    assert busy.between(first_ns, last_ns) <= (last_ns - first_ns) * cores + 4 * cores * clock.tick_ns()
    # when it had ended, its parent had reaped it
    parent = next(one for one in found.processes if one.pid == os.getpid())
    assert parent.samples[-1].reaped_ns - parent.samples[0].reaped_ns >= own_ns - 2 * clock.tick_ns()


def test_samples_cover_the_context_and_the_sampler_is_gone(tmp_path: Path) -> None:
    with sampling(tmp_path / "r", assignment()):
        begin_ns = clock.monotonic_ns()
        time.sleep(0.2)
        end_ns = clock.monotonic_ns()
    found = sampled(tmp_path / "r")
    assert found.samples[0].at_ns < begin_ns
    assert found.samples[-1].at_ns > end_ns
    costs = [sample.cost_ns for sample in found.samples]
    assert costs == sorted(costs)
    assert costs[0] > 0
    assert children() == []


def test_no_argument_of_a_command_is_written(tmp_path: Path) -> None:
    with sampling(tmp_path / "r", assignment()):
        command = [sys.executable, "-c", "import sys; sys.stdin.read()", "--password=sesame"]
        secretive = subprocess.Popen(command, stdin=subprocess.PIPE)
        while secretive.pid not in {process.pid for process in sampled(tmp_path / "r").processes}:
            time.sleep(0.02)
        secretive.communicate()
    text = (tmp_path / "r").read_text()
    assert "sesame" not in text
    assert "stdin" not in text


def test_an_exception_ends_the_sampler(tmp_path: Path) -> None:
    """As Ctrl-C would."""
    with pytest.raises(KeyboardInterrupt), sampling(tmp_path / "r", assignment()):
        raise KeyboardInterrupt
    assert children() == []
    assert sampled(tmp_path / "r").samples


def test_it_dies_with_dlobd(tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom pathlib import Path\nfrom dlobd.run.resource_sampler import *\n"
        f"with sampling(Path({str(tmp_path / 'r')!r}), Assignment({{'dlobd': os.getpid()}}, 'm', 60.0, {PERIOD_NS})):\n"
        "    print('begun', flush=True)\n    time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    owner.stdout.readline()
    sampler = psutil.Process(sampled(tmp_path / "r").roots["sampler"])
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    sampler.wait(10)
    assert all(json.loads(line) for line in (tmp_path / "r").read_text().splitlines())


def test_a_sampler_that_ends_early_is_told(tmp_path: Path) -> None:
    with sampling(tmp_path / "r", assignment(deadline_s=0.05)) as failed:
        os.waitid(os.P_PID, sampled(tmp_path / "r").roots["sampler"], os.WEXITED | os.WNOWAIT)
    assert len(failed) == 1
    assert failed[0].startswith("resource use: the sampler ended before the job did")


def test_a_sampler_that_cannot_write_is_told(tmp_path: Path) -> None:
    with sampling(tmp_path / "missing" / "r", assignment()) as failed:
        pass
    assert len(failed) == 1
    assert "did not start" in failed[0]
    assert "No such file or directory" in failed[0]


def test_a_process_tree_is_what_is_below_its_roots() -> None:
    code = (
        "import subprocess, sys; subprocess.Popen(['sleep', '30'], stdout=subprocess.DEVNULL); "
        "print(1, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    tree = ProcessTree({"x": parent.pid})
    try:
        parent.stdout.readline()
        names = {process.name() for process in tree.processes()}
        assert "sleep" in names
        assert os.getpid() not in {process.pid for process in tree.processes()}
        sleeper = next(process for process in tree.processes() if process.name() == "sleep")
        parent.communicate()
        assert [process.pid for process in tree.processes()] == [sleeper.pid]
        sleeper.kill()
        psutil.wait_procs([sleeper], 5)
        assert tree.processes() == []
    finally:
        parent.kill()
        parent.wait()
