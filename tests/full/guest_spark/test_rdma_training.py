"""Real training over RDMA verbs, on Soft-RoCE in the guest: of processes, and of a Spark job.

An emulated CPU takes a minute or two to import TensorFlow. Nothing here is a measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlobd.bundle.store import Bundle
from dlobd.channel import Channel
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from dlobd.paths import cache_dir
from tests.cluster.test_ways import explained, same_training
from tests.guest.machine import Machine, run

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(2400)]

TRAINING_LIMIT_S, JOB_LIMIT_S = 780.0, 2280.0

JOB_MEMORY_MB = 10_240
"""Six daemons, the driver with Master and Workers, two executors and two trainers."""

START_UP = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Emulated, the second compiler costs more than it saves."""

SETTINGS = ("scheduler=local-cluster", "launcher=barrier", "input=read", "exchange=ring", "timeout_s=1800")

START_LIMIT_S = 600.0
PATIENT = f"""
import sys
from functools import partialmethod
from dlobd.cli.main import main
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
EmbeddedCluster.start = partialmethod(EmbeddedCluster.start, timeout_s={START_LIMIT_S})
sys.exit(main())
"""
"""The command `dlobd` with a longer timeout for the start of six daemons on an emulated CPU."""

IN_GUEST = 'mkdir -p "$DLOBD_CACHE" && ln -s "$1" "$DLOBD_CACHE/daemons" && shift && exec "$@"'
"""The guest's cluster is its own; the daemons' prepared classes are the host's, because making them takes minutes."""


def test_the_same_processes_train_over_tcp_and_over_verbs() -> None:
    script = Path(__file__).with_name("training.py")
    ended = run([sys.executable, str(script)], Machine(6144), deadline_s=TRAINING_LIMIT_S)
    assert ended.status == 0, ended.stderr.decode(errors="replace")
    found = json.loads(ended.stdout.splitlines()[-1])
    for way, said in found.items():
        channel = way.split("/")[1]
        told = [TransportEvidence.from_attrs(one["transport"]) for one in said]
        plane = verdict("exchange", Channel.parse(channel), told)
        rdma = channel.startswith("rdma")
        assert (plane.kind, plane.soft, plane.agrees) == ("verbs" if rdma else "tcp", rdma, True), (way, plane.evidence)
        assert said[0]["losses"] == said[1]["losses"]
    over_tcp, over_verbs, other, sockets = ([one["losses"] for one in said] for said in found.values())
    assert over_tcp == over_verbs == sockets
    assert other == [pytest.approx(each, rel=1e-5) for each in over_tcp]
    assert over_tcp[0][-1] < over_tcp[0][0]


def test_a_spark_job_trains_over_verbs(alone, jars: Path, tmp_path: Path) -> None:
    """One spark-submit: its bundle says Soft-RoCE, verbs, with counters, and has the losses of a run on this host."""
    environment = {
        **os.environ,
        **START_UP,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DLOBD_JARS": str(jars),
        "DLOBD_CACHE": "/var/tmp/guest-cache",
        "DLOBD_DATA": "",
    }
    settings = [word for setting in (*SETTINGS, "channel=rdma@rxe0:1") for word in ("--set", setting)]
    command = [sys.executable, "-c", PATIENT, "run", "softmax-mnist-quick", *settings, "--out", str(tmp_path)]
    prepared = ["sh", "-c", IN_GUEST, "sh", str((cache_dir() / "daemons").resolve())]
    ended = run(
        [*prepared, *command],
        Machine(JOB_MEMORY_MB),
        deadline_s=JOB_LIMIT_S,
        out=tmp_path,
        environment=environment,
    )
    said = ended.stdout.decode()
    assert ended.status == 0, ended.stderr.decode()[-3000:]
    assert "Soft-RoCE in software: its speed is not that of RDMA hardware" in " ".join(said.split())
    bundle = Bundle(Path(said.splitlines()[-1].removeprefix("bundle: ")))
    assert explained(bundle)["channel"] > 0
    record = json.loads((bundle.path / "run.json").read_text())
    (plane,) = [one for one in record["transport"] if one["plane"] == "exchange"]
    assert (plane["kind"], plane["device"], plane["soft"], plane["agrees"]) == ("verbs", "rxe0:1", True, True), plane
    assert any("counted" in line and "rxe0:1" in line for line in plane["evidence"]), plane
    assert {one["kind"] for one in record["transport"] if one["plane"] in ("spark", "hdfs")} == {"tcp"}
    here = alone.run("launcher=native", "input=read", "exchange=ring")
    assert here.code == 0, here.err
    same_training(bundle, here.bundle)
    # the report can be had again on this host, which has no such device
    shown = subprocess.run(
        [sys.executable, "-m", "dlobd", "show", str(bundle.path), "--full"], capture_output=True, text=True, check=True
    ).stdout
    assert "Soft-RoCE in software: its speed is not that of RDMA hardware" in " ".join(shown.split())
