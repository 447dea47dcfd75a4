"""What breaks while a job runs on the mini-cluster, and what a person does wrong before one does.

Each time: an end in bounded time, one line with the right cause, a bundle that can be read, nothing left.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlobd.bundle.store import Bundle
from tests.cluster.conftest import until
from tests.compose.cluster import FABRIC, PROJECT, MiniCluster

from .test_runs import record

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

END_S = 240
LONG = ("launcher=barrier", "input=read", "epochs=400", "executor_overhead_mb=1536")
"""Minutes of steps, unless something ends it; two such executors do not fit on one host."""


@contextmanager
def training(cluster: MiniCluster, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """A job whose two ranks take steps; ended with the test, whatever happens."""
    process = cluster.started("softmax-mnist", *LONG, *settings)
    try:
        until(lambda: len(ranks(cluster)) == 2 or process.poll() is not None, 240, "both ranks train")
        assert process.poll() is None, process.communicate()[0]
        time.sleep(10)  # from the import of TensorFlow to some steps
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=90)


def ranks(cluster: MiniCluster) -> list[int]:
    word = "pgrep -fc [d]lobd.job.launchers.trainer_process"
    return [i for i in (1, 2) if int(cluster.inside("worker", "sh", "-c", word, index=i).out.strip() or "0") > 0]


def without_master(cluster: MiniCluster) -> int:
    """A worker that does not run the ApplicationMaster."""
    word = "pgrep -fc [E]xecutorLauncher"
    (found, *_) = [i for i in (1, 2) if cluster.inside("worker", "sh", "-c", word, index=i).out.strip() == "0"]
    return found


def failed(cluster: MiniCluster, process: subprocess.Popen[str], code: int = 5) -> tuple[str, Bundle]:
    """The reason and the bundle of a run that ends within its time."""
    out, _ = process.communicate(timeout=END_S)
    assert process.returncode == code, out
    assert "Traceback" not in out
    bundle = cluster.latest()
    run = record(bundle)
    assert run["status"] == "failed"
    assert bundle.verify() == []
    assert sum(layer["ns"] for layer in run["layers"]) + run["unattributed_ns"] == run["wall_ns"] > 0
    return run["reason"], bundle


@pytest.fixture
def cluster(project: MiniCluster) -> MiniCluster:
    """Two workers, whole again whatever the test before has broken."""
    found = project.with_(WORKERS="2")
    found.up()
    return found


def test_a_worker_that_is_stopped(cluster: MiniCluster) -> None:
    with training(cluster) as process:
        lost = without_master(cluster)
        cluster.engine.docker("stop", "--time", "1", cluster.container("worker", lost))
        reason, _ = failed(cluster, process)
    assert f"node {cluster.container('worker', lost)}.{PROJECT}-lan was lost" in reason, reason


def test_a_network_that_is_cut_between_workers(cluster: MiniCluster) -> None:
    """`docker network disconnect`: ranks that exchange over it end by their deadline, and say which peer is silent."""
    with training(cluster, "exchange=ring", f"channel=tcp@{FABRIC}") as process:
        cut = cluster.container("worker", 2)
        cluster.engine.docker("network", "disconnect", f"{PROJECT}-fabric", cut)
        try:
            reason, _ = failed(cluster, process)
        finally:
            cluster.engine.docker("network", "connect", f"{PROJECT}-fabric", cut)
    assert re.search(r"rank [01]", reason), reason


def test_down_in_the_middle_of_a_run(cluster: MiniCluster) -> None:
    """With --remove-orphans, as Compose calls the containers of `run`: the run is marked as interrupted, in the volume
    that stays; no container and no network is left."""
    with training(cluster) as process:
        cluster.down("--remove-orphans")
        out, _ = process.communicate(timeout=60)
        assert process.returncode != 0, out
    left = cluster.engine.docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
    assert left.stdout == ""
    networks = cluster.engine.docker("network", "ls", "--format", "{{.Name}}").stdout.split()
    assert not [name for name in networks if name.startswith(PROJECT)]
    cluster.up()
    run = record(cluster.latest())
    assert run["status"] == "interrupted", run["reason"]


def test_a_container_that_is_killed_by_its_memory_limit(project: MiniCluster, tmp_path: Path) -> None:
    """A worker whose container has less memory than YARN gives away: what was killed and why is said."""
    small = tmp_path / "small.yaml"
    small.write_text("services: {worker: {mem_limit: 1000m, memswap_limit: 1000m}}\n")
    cluster = project.with_(small, WORKERS="2")
    cluster.up()
    process = cluster.started("softmax-mnist", *LONG)
    reason, _ = failed(cluster, process)
    assert re.search(r"killed by signal 9 \(by the kernel: out of memory .* limit is 1000 MB\)", reason), reason


def test_too_little_memory(project: MiniCluster) -> None:
    ended = project.with_(WORKERS="900").compose("up", "--detach", "--no-build", "check")
    said = until(lambda: project.compose("logs", "--no-color", "check").out, 30, "the check's line")
    assert ended.code == 0, ended.err  # it was started; whoever depends on it is not
    assert re.search(r"The containers may use \d+ MB .*900 x worker 4096.* this machine has \d+ MB", said), said
    assert "WORKERS" in said


def test_a_port_that_is_taken(project: MiniCluster) -> None:
    project.down("--volumes")
    with socket.create_server(("127.0.0.1", project.ports[0])):
        ended = project.compose("up", "--detach", "--no-build", "--wait", "master")
    assert ended.code != 0
    assert str(project.ports[0]) in ended.err, ended.err
    project.down("--volumes")


def test_no_engine_and_no_compose(project: MiniCluster, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text()
    nobody = {**project.environment, "DOCKER_HOST": f"unix://{tmp_path}/none"}
    ended = subprocess.run(project.command("up"), env=nobody, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "Cannot connect to the Docker daemon" in ended.stderr
    assert "Cannot connect to the Docker daemon" in page
    without = {**project.environment, "DOCKER_CONFIG": str(tmp_path), "DOCKER_CLI_PLUGIN_EXTRA_DIRS": ""}
    ended = subprocess.run(
        ("docker", "compose", "up"), env=without, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0 or "compose" in ended.stdout
    assert "docker compose version" in page
