"""Requests for GPUs, up to YARN's refusal: the cluster knows yarn.io/gpu, and no node has one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings
from tests.cluster.test_by_hand import small_archive

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

FOREIGN = Path(__file__).parents[2] / "foreign"


@pytest.fixture(scope="module")
def without_gpus(jars: Path) -> Iterator[EmbeddedCluster]:
    """A cluster that has the resource type, and none of it."""
    with tempfile.TemporaryDirectory(prefix="dl-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        cluster = EmbeddedCluster(ClusterSettings(Path(directory) / "cluster", resource_types=("yarn.io/gpu",)))
        cluster.start(lambda line: None)
        yield cluster
        cluster.stop()


def test_an_experiment_that_wants_gpus_is_refused_before_it_is_submitted(without_gpus, alone) -> None:
    conf = str(without_gpus.client_conf_dir)
    ended = alone("run", "softmax-mnist-quick", "--set", "device=gpu", "--hadoop-conf", conf, "--out", str(alone.out))
    assert ended.code == 3
    assert ended.err.splitlines()[-1].startswith("dlobd: 2 workers need 2 GPUs, but YARN has 0.")


def test_yarns_refusal_of_a_gpu_is_the_reason(without_gpus, alone, tmp_path) -> None:
    archive = small_archive(tmp_path / "own.tar.gz", '#!/bin/sh\nexec python3 "$@"\n')
    there = ["--hadoop-conf", str(without_gpus.client_conf_dir), "--archive", str(archive), "--out", str(alone.out)]
    asked = {
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
        "spark.executor.resource.gpu.discoveryScript": "/bin/true",
    }
    conf = [word for name, value in asked.items() for word in ("--conf", f"{name}={value}")]
    line = ["spark-submit", *conf, str(FOREIGN / "word_count.py"), "400"]
    ended = alone("submit", *there, "--", *line, within_s=400)
    assert ended.code == 5, ended.err
    reason = ended.bundle.read().reason
    assert "yarn.io/gpu" in reason, reason


def test_tensorflowonspark_takes_no_gpu_unasked(dlobd, tmp_path) -> None:
    """On a host whose one GPU is another's: of its own accord it waits for a free one, and then fails."""
    calls = tmp_path / "calls"
    smi = tmp_path / "nvidia-smi"
    listed = "*--list-gpus*) echo 'GPU 0: Other (UUID: GPU-1)';;"
    smi.write_text(f'#!/bin/sh\necho "$*" >> {calls}\ncase "$*" in {listed} *) echo \'gpu_uuid\'; echo GPU-1;; esac\n')
    smi.chmod(0o755)
    ended = dlobd.run("scheduler=local-cluster", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert ended.code == 0, ended.err
    assert set(calls.read_text().splitlines()) == {"--list-gpus"}
