"""Micro-benchmarks between real processes: what they measure, verify and report; never how fast it is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import micro as bench_micro
from bench import perftest
from dlobd.axes import LIBRARIES
from dlobd.errors import SetupError
from dlobd.micro import agent, estimates, places, results, study, table
from dlobd.micro.hosts import HERE
from dlobd.micro.launch import Plan, launch
from dlobd.micro.payload import payload, size_bytes
from dlobd.micro.plan import BENCHMARKS, Point, Route
from dlobd.micro.ranks import MPI_ALLREDUCE
from dlobd.micro.request import Request
from dlobd.micro.results import Launch
from dlobd.run.progress import Progress
from tests.namespaces import INTERFACE, hosts

pytestmark = pytest.mark.timeout(240)

CHANNELS = [("sockets", "tcp"), ("grpc", "tcp"), ("bare", "tcp"), ("ucx", "shm")]
PATIENCE_S = 120


def point(benchmark: str, text: str, **more: Any) -> Point:
    serialized = more.pop("serialized", False)
    return Point(benchmark, payload(text, serialized=serialized), **{"seconds": 0.05, "warm_up_s": 0.02, **more})


def launched(
    library: str, channel: str, *points: Point, count: int = 2, servers: int = 1, exchange: str = ""
) -> Launch:
    if library != "bare" and (reason := LIBRARIES.row(library).reason()):
        pytest.skip(reason)
    plan = Plan(Route(channel, library, exchange), points, servers)
    done = launch(plan, [HERE] * count, 0)
    assert done.failed == ""
    assert sum(one.bad for one in done.points) == 0
    assert len(done.points) == len(points)
    return done


@pytest.mark.parametrize(("library", "channel"), CHANNELS)
def test_each_channel_carries_each_benchmark(library: str, channel: str) -> None:
    """All messages are verified; the kernel's counters show the channel."""
    one_sided = [point(name, "4K") for name in ("put", "get")] if library == "ucx" else []
    done = launched(
        library,
        channel,
        point("latency", "8"),
        point("latency", "4M"),
        point("latency", "skew"),
        point("latency", "10,3,70K", serialized=True),
        point("bandwidth", "1M"),
        point("bandwidth", "uniform"),
        point("bidirectional", "64K"),
        point("rate", "8"),
        point("replay", "100,5000,1M", pause_ns=5 * 10**8),
        *one_sided,
    )
    small, large, *_ = done.points
    assert 0 < min(small.times_ns) < min(large.times_ns)
    replayed = next(one for one in done.points if one.point.benchmark == "replay")
    assert min(replayed.times_ns) < 5 * 10**8, "the pause is outside of the time"
    assert done.transport
    assert done.transport.agrees is True
    assert done.transport.kind == channel
    assert done.clock_resolution_ns
    first, second = small.ends
    assert first.use
    assert second.use
    assert (first.use.messages, second.use.messages) == (len(small.times_ns), len(small.times_ns))
    assert second.use.cpu_ns > 0


def test_workers_call_all_servers() -> None:
    done = launched("sockets", "tcp", point("ps", "uniform"), count=5, servers=2)
    (one,) = done.points
    servers, workers = one.ends[:2], one.ends[2:]
    assert [len(end.times_ns) for end in servers] == [0, 0]
    assert all(end.times_ns and len(end.batches_ns) for end in workers)
    assert len({len(end.times_ns) for end in workers}) == 1
    calls = sum(len(end.times_ns) for end in workers)
    used = [end.use for end in (*servers, *workers) if end.use]
    assert [use.messages for use in used[:2]] == [calls // 2] * 2, "each server counts the calls of all workers once"
    assert all(use.cpu_ns > 0 for use in used)
    (row,) = estimates.rows(results.Results(1, "", "here", "", 8, None, (done,)))
    assert row.cpu_ns[1], "of the servers"
    assert row.switches[1] is not None


@pytest.mark.parametrize(
    ("exchange", "library", "whole"),
    [(MPI_ALLREDUCE, "mpi", False), ("ring", "sockets", False), ("ps", "sockets", True), ("ps-async", "sockets", True)],
)
def test_ranks_reduce_and_verify(exchange: str, library: str, whole: bool) -> None:
    shapes = ((7, 3), (), (100,)) if whole else ((1000,),)
    chosen = point("exchange", "4000", shapes=shapes, whole=whole)
    (one,) = launched(library, "tcp", chosen, count=3, servers=0, exchange=exchange).points
    assert len(one.ends) == 3
    assert min(one.times_ns) > 0


def test_a_wrong_sum_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The ranks import a collective that changes one element of each result."""
    (tmp_path / "sitecustomize.py").write_text(
        "import numpy\n"
        "import dlobd.network.exchanges.over_mesh as over\n"
        "right = over.MeshPeers.all_reduce\n"
        "def wrong(self, array, deadline_s):\n"
        "    right(self, array, deadline_s)\n"
        "    array.flat[-1] += 1\n"
        "over.MeshPeers.all_reduce = wrong\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = Plan(Route("tcp", "sockets", "ring"), (point("exchange", "400", shapes=((100,),)),), servers=0)
    done = launch(plan, [HERE] * 2, 0)
    assert done.failed == ""
    assert done.points[0].bad == 2 + len(done.points[0].times_ns)


# ---- failures


def test_a_failing_end_is_one_line() -> None:
    done = launch(Plan(Route("tcp@eth77", "sockets"), (point("latency", "8"),)), [HERE] * 2, 0)
    assert re.fullmatch(r"process \d on .+ failed: .*This host has no interface 'eth77'.*", done.failed)
    assert "\n" not in done.failed
    assert done.points == ()
    assert done.transport is None


def test_a_server_that_dies_leaves_the_completed_points() -> None:
    killed = threading.Event()

    def kill() -> None:
        while not (ends := [pid for pid in children() if "dlobd.micro.end" in command_of(pid)]):
            time.sleep(0.01)
        time.sleep(4)
        os.kill(ends[0], signal.SIGKILL)
        killed.set()

    thread = threading.Thread(target=kill)
    thread.start()
    endless = point("latency", "64K", seconds=60.0)
    done = launch(Plan(Route("tcp", "sockets"), (point("rate", "8"), endless)), [HERE] * 2, 0)
    thread.join()
    assert killed.is_set()
    assert [one.point.benchmark for one in done.points] == ["rate"]
    assert re.search(r"is gone|was killed", done.failed), done.failed
    assert children() == []


def children() -> list[int]:
    """Return the processes of launches that this process has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and "dlobd.micro" in command_of(int(entry.name)):
            found.append(int(entry.name))
    return sorted(found)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


# ---- places


def test_hosts_have_their_own_link() -> None:
    plan = Plan(Route(f"tcp@{INTERFACE}", "ucx"), (point("latency", "4K"), point("put", "4K")))
    with hosts(2) as made:
        done = launch(plan, made, 0)
    assert done.failed == ""
    assert done.transport
    assert (done.transport.kind, done.transport.interface, done.transport.agrees) == ("tcp", INTERFACE, True)


def test_a_capped_link_limits_the_bandwidth() -> None:
    chosen = Plan(Route(f"tcp@{INTERFACE}", "sockets"), (point("bandwidth", "256K", seconds=0.5),))
    with hosts(2, "100mbit") as made:
        done = launch(chosen, made, 0)
    assert done.failed == ""
    (row,) = estimates.rows(results.Results(1, "", "", "", 2, None, (done,)))
    assert row.figure
    assert row.figure.value < 13.5  # 12.5 MB/s, and the burst of the queue


def test_a_requested_link_is_the_ceiling() -> None:
    """Without it, the rate of a virtual interface is unknown."""
    request = Request(("bandwidth",), libraries=("sockets",), sizes="256K", seconds=0.2, launches=1)
    for link, expected in (("100mbit", 12.5e6), ("", None)):
        with Progress() as progress:
            found = places.measure(request, "namespaces", link, progress)
        assert [(one.failed, one.link_bytes_per_s) for one in found.launches] == [("", expected)]


def test_the_host_of_a_capped_link_is_named() -> None:
    """Of three hosts, each ordered pair is measured."""
    request = Request(
        ("bandwidth",), (f"tcp@{INTERFACE}",), ("sockets",), sizes="256K", pairs=True, ranks=3, launches=1
    )
    assert request.processes == 3
    with hosts(3) as made:
        words = f"tc -n {made[1].namespace} qdisc add dev {INTERFACE} root tbf rate 50mbit burst 32kb latency 20ms"
        subprocess.run(words.split(), check=True, capture_output=True, timeout=20)
        plans, _ = request.plans(())
        work = [(plan, chosen) for plan in plans for chosen in places.chosen(plan, request, made)]
        found = study.run(results.empty("", "namespaces", 2), work, 1, lambda _: None)
    assert [launch.failed for launch in found.launches] == [""] * 6
    (by_pair,) = table.tables(found)
    assert f"{made[1].namespace} as sender" in by_pair.note


def dlobd(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlobd", "micro", *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@contextmanager
def serving(**environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield an agent and its address."""
    command = [sys.executable, "-m", "dlobd", "micro", "serve"]
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline().removeprefix("listening: ").strip()
        finally:
            process.terminate()


def test_agents_measure_for_a_coordinator() -> None:
    secret = {"DLOBD_MICRO_SECRET": "of this test"}
    with serving(**secret) as (_, first), serving(**secret) as (_, second):
        places = f"{first},{second}"
        done = dlobd("latency", "--quick", "--library", "sockets", "--on", places, "--json", **secret)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
        found = results.parsed(done.stdout)
        assert len(found.launches) == 2
        assert found.notes[0].startswith("One host only: all 2 processes are on ")
        refused = dlobd("latency", "--quick", "--on", places, DLOBD_MICRO_SECRET="another")
        assert refused.returncode == 3
        assert "the secret of this end is not the run's secret" in refused.stderr
        unset = dlobd("latency", "--on", places)
        assert (unset.returncode, unset.stderr.count("\n")) == (2, 1)
    gone = dlobd("latency", "--on", first, **secret)
    assert gone.returncode == 3
    assert f"No agent at {first}" in gone.stderr


def test_an_agent_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hello = {"host": "there", "address": "127.0.0.1", "version": "0.0.1"}
    monkeypatch.setattr(agent.Wire, "recv", lambda self, within_s: hello)
    closed: list[bool] = []
    monkeypatch.setattr(agent.Wire, "close", lambda self: closed.append(True))
    with pytest.raises(SetupError, match=r"agent on there has dlobd 0\.0\.1, and this machine has "):
        agent.site(None)  # type: ignore[arg-type]
    assert closed == [True]


def test_an_agent_that_is_killed_fails_the_launch() -> None:
    secret = {"DLOBD_MICRO_SECRET": "of this test"}
    with serving(**secret) as (process, address):
        threading.Timer(5, process.kill).start()
        words = ("latency", "--sizes", 8, "--time", 60, "--launches", 1, "--library", "sockets", "--on", address)
        done = dlobd(*words, **secret)
    assert done.returncode == 5
    assert "FAILED: launch 1 of sockets tcp" in done.stdout.replace("\n", " ")


# ---- the command


def test_the_command_measures_and_writes_results(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ("latency", "bandwidth", "--quick", "--library", "sockets", "--library", "bare", "--compare")
    done = dlobd(*words, "-o", path)
    assert done.returncode == 0, done.stderr
    assert "Latency: message and its echo; half of the round trip" in done.stdout
    assert "bare tcp compared with sockets tcp" in done.stdout
    found = results.read(path)
    assert [launch.number for launch in found.launches] == [0, 0, 1, 1]
    assert [launch.route.library for launch in found.launches] == ["sockets", "bare", "bare", "sockets"]
    again = dlobd("latency", "-o", path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


def test_ctrl_c_keeps_the_completed_launches(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "dlobd", "micro", "rate", "latency", "--library", "sockets", "--sizes", "8"]
    command += ["--time", "1", "--launches", "30", "-o", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if "launch 1 of 30" not in line and "of 30" in line:  # a file gets a line again after 15 s
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "it was interrupted" in out.replace("\n", " ")
    found = results.read(path)
    assert found.launches[0].failed == ""
    assert len(found.launches) < 30


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("speed",), "Unknown benchmark 'speed'"),
        (("latency", "--sizes", "0"), "no size"),
        (("latency", "--payload", "random", "--classes", "small"), "at least two"),
        (("latency", "--on", "moon"), "Unknown place 'moon'"),
        (("latency", "--link", "1gbit"), "--link needs --on namespaces"),
        (("latency", "--channel", "shm", "--on", "namespaces"), "Shared memory is within one host"),
        (("latency", "--on", "namespaces", "--link", "fast"), "'fast' is no rate"),
        (("latency", "--rate", "3"), "less than 10 calls in 0.5 s"),
        (("latency", "--time", "nan"), "Invalid value for '--time'"),
        (("exchange", "--exchange", "ring", "--library", "mpi"), "it needs library sockets"),
        (("latency", "--library", "grpc", "--channel", "shm"), "cannot be measured over shm"),
        (("latency", "--launches", "-1"), "launches"),
        (("ps", "--servers", "0"), "servers"),
        (("bandwidth", "--rate", "100"), "--rate is for the benchmark latency"),
        (("latency", "-o", "results.txt"), "file type is unknown"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = dlobd(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_every_benchmark_is_in_the_help() -> None:
    shown = dlobd("--help").stdout
    assert all(name in shown for name in BENCHMARKS)
    assert json.loads(json.dumps(results.schema()))["type"] == "object"


# ---- make micro


def test_the_parts_cover_all_benchmarks_but_replay() -> None:
    """The sizes of the references are sizes of the parts that have them."""
    plans = {name: part.plans() for name, part in bench_micro.PARTS.items()}
    points = {name: {point for plan in made for point in plan.points} for name, made in plans.items()}
    assert {one.benchmark for every in points.values() for one in every} == {*BENCHMARKS} - {"replay"}
    for name, part in bench_micro.PARTS.items():
        if part.transport:
            sizes = {(one.benchmark, one.payload.bytes) for one in points[name]}
            assert {("latency", size_bytes(size)) for size in bench_micro.LATENCIES.split(",")} <= sizes
            assert {("bandwidth", size_bytes(size)) for size in bench_micro.BANDWIDTHS.split(",")} <= sizes


def test_the_program_of_ucx_is_read_by_its_header(tmp_path: Path) -> None:
    program = tmp_path / "ucx_perftest"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr'\n"
        "echo '20,1.0,2.0,3.5,4.0,2.0,6,7'\n"
    )
    program.chmod(0o755)
    assert perftest.figure(program, "shm", [HERE] * 2, "", "latency", 8, 20) == pytest.approx(3.5)
    assert perftest.figure(program, "shm", [HERE] * 2, "", "bandwidth", 8, 20) == pytest.approx(2 * 1.048576)
    program.write_text("#!/bin/sh\necho no such test >&2\nexit 1\n")
    with pytest.raises(SetupError, match="ucx_perftest failed: no such test"):
        perftest.figure(program, "shm", [HERE] * 2, "", "latency", 8, 20)
