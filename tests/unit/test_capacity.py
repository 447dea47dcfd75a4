"""Memory, vcores and GPUs of a job are checked before anything starts, also those that dlobd derives."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.models import points
from dlobd.errors import SetupError, UsageError
from dlobd.experiment import files, own_job
from dlobd.hadoop.embedded.configuration import ClusterSettings, default_settings
from dlobd.job import device_config
from dlobd.run import runner
from dlobd.run.preflight import capacity
from dlobd.schema import Experiment

QUICK = "softmax-mnist-quick"


def chosen(*settings: str) -> Experiment:
    return files.load(QUICK, settings)


def check(*settings: str, free_mb: int = 1 << 20) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "available_memory_bytes", lambda: free_mb << 20)
        capacity.check_memory(chosen(*settings), ClusterSettings(Path("unused"), nodemanager_vcores=4))


def test_each_way_asks_for_its_own_processes() -> None:
    executors = {"2 executors": 2 * (512 + 1280)}
    assert capacity.demand_mb(chosen()) == {**executors, "driver": 896, "ApplicationMaster": 896}
    assert capacity.demand_mb(chosen("deploy_mode=cluster")) == {**executors, "driver": 896}
    assert capacity.demand_mb(chosen("scheduler=local-cluster")) == {**executors, "driver": 896}
    assert capacity.demand_mb(chosen("scheduler=standalone"))["Master and Workers"] == 3 * (256 + 384)
    assert capacity.demand_mb(chosen("launcher=tfos-stock"))["driver"] == 512 + 1024, "it imports TensorFlow"


def test_too_little_memory_is_an_error_with_both_figures() -> None:
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
    with pytest.raises(SetupError, match=r"there is room for 5 beside the ApplicationMaster's 1536 MB"):
        check(*settings, "deploy_mode=cluster")


def test_vcores_are_counted_too() -> None:
    """A NodeManager has four: two executors of two leave none for the ApplicationMaster, and none has five."""
    small = ("executor_overhead_mb=500", "train_samples=1200")
    check(*small, "executor_cores=2", "workers=3")
    with pytest.raises(SetupError) as refusal:
        check(*small, "executor_cores=2", "workers=4")
    assert refusal.value.what == (
        "4 executors of 512 + 500 MB and 2 vcores do not fit. On 2 NodeManagers of 6144 MB and 4 vcores, there is "
        "room for 3 beside the ApplicationMaster's 896 MB."
    )
    with pytest.raises(SetupError, match="An executor needs a container of 5 vcores, but YARN allows 4"):
        check("executor_cores=5")


def test_a_machine_without_a_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_own_script_has_the_cores_of_its_line(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.touch()
    asked = ("--executor-cores", "3", "--conf", "spark.task.cpus=3")
    assert capacity.cores_of(own_job.from_line(["spark-submit", str(script)])) == 1
    assert capacity.cores_of(own_job.from_line(["spark-submit", *asked, str(script)])) == 3


ZERO = ("executor_memory_mb=0", "executor_overhead_mb=0")


def load(*settings: str) -> Experiment:
    return files.load("softmax-mnist", settings)


def test_memory_of_0_is_derived_reported_and_stored() -> None:
    told: list[str] = []
    both = files.load("softmax-mnist", ZERO, told.append)
    # 1280, and twice 30,000 records of 28 x 28 bytes
    assert (both.executor_memory_mb, both.executor_overhead_mb) == (512, 1408)
    assert told == ["derived: executor_memory_mb=512, executor_overhead_mb=1408"]
    assert load("executor_overhead_mb=0").executor_memory_mb == load().executor_memory_mb
    assert load("executor_memory_mb=600", "executor_overhead_mb=0").executor_memory_mb == 600
    before = dataclasses.asdict(load()) | {"executor_overhead_mb": 0}
    assert files.from_dict(before).executor_overhead_mb == 0
    with pytest.raises(UsageError, match="executor_memory_mb must be between 450 and 1000000, not 100"):
        load("executor_memory_mb=100")


def test_larger_jobs_get_more_memory() -> None:
    plain = load(*ZERO).executor_overhead_mb
    assert load(*ZERO, "launcher=tfos-stock").executor_overhead_mb == plain + 1280
    assert load(*ZERO, "model=lenet").executor_overhead_mb > plain
    assert (
        load(*ZERO, "model=lenet", "batch_size=500").executor_overhead_mb
        > load(*ZERO, "model=lenet", "batch_size=50").executor_overhead_mb
    )
    large = ("dataset=synthetic", "synthetic_shape=64x64x3", "train_samples=100000")
    assert load(*ZERO, *large).executor_overhead_mb > plain + 1024
    assert load(*ZERO, *large, "launcher=barrier").executor_overhead_mb < load(*ZERO, *large).executor_overhead_mb
    assert load(*ZERO, *large, "input=read").executor_overhead_mb < plain + 256


def test_every_model_gets_the_memory_of_its_measured_runs() -> None:
    for point in points().values():
        free = dataclasses.replace(point, executor_memory_mb=0, executor_overhead_mb=0)
        sizes = files.derived_memory(free)
        assert sizes["executor_overhead_mb"] >= point.executor_overhead_mb
        assert sizes["executor_memory_mb"] >= point.executor_memory_mb
        capacity.check_yarn(dataclasses.replace(free, **sizes), capacity.embedded(default_settings()))  # type: ignore[arg-type]
