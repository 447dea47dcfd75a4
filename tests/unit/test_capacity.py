"""Whether a job fits is said before anything is started, with the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import SetupError
from dlobd.experiment import files
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.run import memory_check
from dlobd.schema import Experiment

QUICK = "softmax-mnist-quick"


def chosen(*settings: str) -> Experiment:
    """The quick experiment with `settings`."""
    return files.load(QUICK, settings)


def check(*settings: str, free_mb: int = 1 << 20) -> None:
    """Checks the quick experiment with `settings` on a machine of two NodeManagers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_check, "available_memory_bytes", lambda: free_mb << 20)
        memory_check.check_memory(chosen(*settings), ClusterSettings(Path("unused")))


def test_each_way_asks_for_its_own_processes() -> None:
    """An ApplicationMaster beside the driver in client mode only; Spark's daemons only where they run."""
    executors = {"2 executors": 2 * (512 + 1280)}
    assert memory_check.asked_mb(chosen()) == {**executors, "driver": 896, "ApplicationMaster": 896}
    assert memory_check.asked_mb(chosen("deploy_mode=cluster")) == {**executors, "driver": 896}
    assert memory_check.asked_mb(chosen("scheduler=local-cluster")) == {**executors, "driver": 896}
    assert memory_check.asked_mb(chosen("scheduler=standalone"))["Master and Workers"] == 3 * (256 + 384)
    assert memory_check.asked_mb(chosen("launcher=tfos-stock"))["driver"] == 512 + 1024, "it imports TensorFlow"


def test_a_machine_with_too_little_memory_is_told_what_is_asked() -> None:
    """The parts, their sum and what is available."""
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
