"""Other training frameworks on Spark's barrier mode: TorchDistributor and xgboost.spark, unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

FOREIGN = Path(__file__).parents[2] / "foreign"
PYTHON = "/usr/bin/python3"
ARROW = ("--with", "pyarrow<20", "--with", "pandas<3")  # later versions need another NumPy than Debian's
MODES = pytest.mark.parametrize("mode", ["client", "cluster"])


@pytest.fixture(scope="module")
def torch() -> tuple[str, ...]:
    """Return the options for Debian's Python with PyTorch."""
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, timeout=100).returncode:
        pytest.skip("Debian's package python3-torch is not installed")
    return ("--python", PYTHON, *ARROW)


def spans(bundle) -> tuple[Span, ...]:
    return assemble(Evidence(bundle.path)).spans


def names(run) -> set[str]:
    return {row[0] for layer in run["layers"] for row in (*layer["names"], *layer["causes"])}


def not_measured(run) -> list[str]:
    return [row["why"] for row in run["not_measured"] if row["layer"] == "channel"]


def checked(run, steps) -> None:
    """Each rank has the number of steps that it counted itself; the lanes agree with each other."""
    found = {(rank["role"], rank["index"]): rank["steps"] for rank in run["ranks"]}
    assert found == {("chief", 0): steps, ("worker", 0): steps}
    assert all(rank["step_p50_ns"] > 0 for rank in run["ranks"])
    assert {clip["kind"] for clip in run["clips"]} & {"inconsistent", "cycle"} == set()
    assert [line for line in run["warnings"] if line.startswith("missing: ")] == []


@pytest.mark.parametrize(
    ("words", "mode"), [((), "client"), ((), "cluster"), (("file",), "client"), (("local",), "client")]
)
def test_torch_distributor(dlobd, torch, words, mode) -> None:
    """The chain leads from the barrier task to torchrun and to its training process, or from the driver to both."""
    job = ("spark-submit", "--deploy-mode", mode, "--num-executors", "2", str(FOREIGN / "torch_distributor.py"), *words)
    ended = dlobd("submit", *torch, "--out", str(dlobd.out), "--", *job, within_s=400)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    checked(run, 48)
    assert {"torchrun", "import torch", "torchrun's poll of its processes (sleep 5 s)"} <= names(run)
    assert "PyTorch's all-reduce is part of your steps: it is not measured separately" in not_measured(run)
    lanes = {span.lane for span in spans(ended.bundle) if span.kind is kinds.BARRIER}
    assert lanes == (set() if words == ("local",) else {"executor-1", "executor-2"})


@MODES
def test_xgboost_spark(dlobd, mode) -> None:
    packages = [word for name in ("xgboost-cpu", "pandas", "pyarrow", "scikit-learn") for word in ("--with", name)]
    job = ("spark-submit", "--deploy-mode", mode, "--num-executors", "2", str(FOREIGN / "xgboost_spark.py"))
    ended = dlobd("submit", *packages, "--out", str(dlobd.out), "--", *job, within_s=400)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    checked(run, 12)
    assert "XGBoost's all-reduce is part of your steps: it is not measured separately" in not_measured(run)
    assert {"step", "build DMatrix", "join ranks"} <= {span.name for span in spans(ended.bundle)}


def test_an_interpreter_without_torch(dlobd) -> None:
    """The reason is the missing module, not the command that failed."""
    job = ("spark-submit", "--num-executors", "2", str(FOREIGN / "torch_distributor.py"))
    ended = dlobd("submit", "--with", "pandas", "--with", "pyarrow", "--out", str(dlobd.out), "--", *job, within_s=400)
    assert ended.code == 5
    assert "No module named 'torch'" in ended.line
    assert "--python" in ended.line
