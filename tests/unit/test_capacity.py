"""Whether a job fits is said before anything is started, with the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import SetupError
from dlobd.experiment import files, own_job
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.job import device_config
from dlobd.run import runner
from dlobd.run.preflight import capacity
from dlobd.schema import Experiment

QUICK = "softmax-mnist-quick"


def chosen(*settings: str) -> Experiment:
    return files.load(QUICK, settings)


def check(*settings: str, free_mb: int = 1 << 20) -> None:
    """Checks the quick experiment with `settings` on a machine of two NodeManagers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "available_memory_bytes", lambda: free_mb << 20)
        capacity.check_memory(chosen(*settings), ClusterSettings(Path("unused")))


def test_each_way_asks_for_its_own_processes() -> None:
    """An ApplicationMaster beside the driver in client mode only; Spark's daemons only where they run."""
    executors = {"2 executors": 2 * (512 + 1280)}
    assert capacity.demand_mb(chosen()) == {**executors, "driver": 896, "ApplicationMaster": 896}
    assert capacity.demand_mb(chosen("deploy_mode=cluster")) == {**executors, "driver": 896}
    assert capacity.demand_mb(chosen("scheduler=local-cluster")) == {**executors, "driver": 896}
    assert capacity.demand_mb(chosen("scheduler=standalone"))["Master and Workers"] == 3 * (256 + 384)
    assert capacity.demand_mb(chosen("launcher=tfos-stock"))["driver"] == 512 + 1024, "it imports TensorFlow"


def test_a_machine_with_too_little_memory_is_told_what_is_asked() -> None:
    with pytest.raises(SetupError) as refusal:
        check(free_mb=5375)
    assert refusal.value.what == (
        "The job asks for 5376 MB of memory (2 executors 3584, driver 896, ApplicationMaster 896); "
        "only 5375 MB are available."
    )
    check(free_mb=5376)
    check("launcher=native", "input=read", free_mb=1)  # plain processes have no limit


def test_a_driver_in_a_container_takes_room_from_executors() -> None:
    """Six executors of 1664 MB fit beside an ApplicationMaster of 896 MB, not beside a driver with TensorFlow."""
    settings = ("launcher=tfos-stock", "executor_overhead_mb=1152", "workers=6", "train_samples=1200")
    check(*settings)
    with pytest.raises(SetupError, match=r"next to the ApplicationMaster of 1536 MB: there is room for 5"):
        check(*settings, "deploy_mode=cluster")


def test_vcores_are_counted_too() -> None:
    """A NodeManager has four: two executors of two leave none for the ApplicationMaster, and none has five."""
    small = ("executor_overhead_mb=500", "train_samples=1200")
    check(*small, "executor_cores=2", "workers=3")
    with pytest.raises(SetupError) as refusal:
        check(*small, "executor_cores=2", "workers=4")
    assert refusal.value.what == (
        "4 executors of 512 + 500 MB and 2 vcores do not fit on 2 NodeManagers of 6144 MB and 4 vcores next to the "
        "ApplicationMaster of 896 MB: there is room for 3."
    )
    with pytest.raises(SetupError, match="An executor needs a container of 5 vcores, but YARN allows at most 4"):
        check("executor_cores=5")


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, before anything is started; the embedded YARN hands out none even where there is one."""
    monkeypatch.setattr(capacity, "gpus_here", lambda: 0)
    capacity.check_gpus(chosen())
    with pytest.raises(SetupError, match="device gpu: no NVIDIA GPU was found on this machine"):
        capacity.check_gpus(chosen("device=gpu"))
    with pytest.raises(SetupError, match="device gpu: no NVIDIA GPU was found on this machine"):
        runner.plan(chosen("device=gpu"))
    monkeypatch.setattr(capacity, "gpus_here", lambda: 1)
    with pytest.raises(SetupError, match=r"the embedded cluster's YARN has no resource type yarn\.io/gpu"):
        capacity.check_gpus(chosen("device=gpu"))
    with pytest.raises(SetupError, match="2 workers need 2 GPUs, but this machine has 1"):
        capacity.check_gpus(chosen("device=gpu", "scheduler=standalone"))
    capacity.check_gpus(chosen("device=gpu", "scheduler=standalone", "workers=1"))


@pytest.mark.parametrize(
    ("variable", "found"), [(None, None), ("", []), ("-1", []), ("2,GPU-7", ["2", "GPU-7"]), ("3,-1,4", ["3"])]
)
def test_a_gpu_that_is_hidden_from_dlobd_is_not_used(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, found: list[str] | None
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert device_config.visible_gpus() == found
    if found != []:
        assert device_config.gpu_id(0) == (found or ["0"])[0]


def test_nvidias_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert capacity.gpus_here() == len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def test_an_own_script_has_the_cores_of_its_line(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.touch()
    asked = ("--executor-cores", "3", "--conf", "spark.task.cpus=3")
    assert capacity.cores_of(own_job.from_line(["spark-submit", str(script)])) == 1
    assert capacity.cores_of(own_job.from_line(["spark-submit", *asked, str(script)])) == 3
