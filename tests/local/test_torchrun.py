"""The recorder in torchrun's subprocesses, with a package that has the parts of PyTorch that the hooks use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dlobd import spans as kinds
from dlobd.evidence import own_steps, recorder
from dlobd.job.user import torchrun
from tests.recorded import read_all

TORCH = {
    "__init__": "from . import autograd, distributed, nn, optim, utils\nis_grad_enabled = autograd.GRAD.__len__",
    "autograd": "GRAD = [1]\ndef backward(*tensors): pass",
    "distributed/__init__": "from .distributed_c10d import *",
    "distributed/distributed_c10d": "def init_process_group(backend): return backend",
    "distributed/run": "import torch",
    "nn/__init__": "from . import parallel",
    "nn/parallel": "class DistributedDataParallel:\n def forward(self, x): return x",
    "optim": """
class Optimizer:
    def __init__(self): pass
class SGD(Optimizer):
    def step(self, closure=None): return closure and closure()
class Adam(SGD): pass
""",
    "utils/__init__": "from . import data",
    "utils/data/__init__": "from . import dataloader",
    "utils/data/dataloader": """
class _BaseDataLoaderIter:
    def __init__(self, rows): self.rows = iter(rows)
    def __iter__(self): return self
    def __next__(self): return next(self.rows)
    next = __next__
""",
}

TRAIN = """
import os, sys, torch
from torch.distributed import init_process_group
assert init_process_group("gloo") == "gloo"
model, first, second = torch.nn.parallel.DistributedDataParallel(), torch.optim.SGD(), torch.optim.Adam()
for epoch in range(2):
    for row in torch.utils.data.dataloader._BaseDataLoaderIter([1, 2, 3]):
        for optimizer in (first, second):  # in turn: one step
            assert model.forward(row) == row
            torch.autograd.backward(row)
            assert optimizer.step(lambda: row) == row
torch.autograd.GRAD.clear()
model.forward(4)  # evaluates
print(os.environ.get("PYTHONPATH"), os.environ.get("TORCHRUN_SPANS"), sys.modules["sitecustomize"].__file__)
"""


def run(
    tmp_path: Path, words: list[str], package: dict[str, str] = TORCH, **variables: str
) -> tuple[subprocess.CompletedProcess[str], list[recorder.RecordedProcess]]:
    (tmp_path / "lib").mkdir(parents=True)
    for name, text in package.items():
        path = tmp_path / "lib" / "torch" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "lib" / "sitecustomize.py").write_text("import os\nassert os.environ['HOME']")
    path = os.pathsep.join([torchrun.CHILD_PATH, str(tmp_path / "lib")])
    environment = {**os.environ, "PYTHONPATH": path, torchrun.CALLER: f"7:{tmp_path}/spans", **variables}
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    return done, read_all(tmp_path / "spans")


def rank(tmp_path: Path, text: str) -> tuple[subprocess.CompletedProcess[str], recorder.RecordedProcess]:
    (tmp_path / "train.py").write_text(text)
    done, (process,) = run(tmp_path, [str(tmp_path / "train.py")], RANK="1", TORCHELASTIC_RUN_ID="r1")
    return done, process


def test_a_training_process_is_a_rank_with_steps(tmp_path: Path) -> None:
    """It runs as without dlobd; its steps, epochs and rendezvous are recorded."""
    done, process = rank(tmp_path, TRAIN)
    assert done.returncode == 0, done.stderr
    library = tmp_path / "lib"
    assert done.stdout.split() == [str(library), "None", str(library / "sitecustomize.py")]
    assert (process.process.role, process.process.index, process.forked) == ("worker", 0, False)
    process.spans = own_steps.numbered(process.spans)
    assert own_steps.count(process.spans) == 6
    (main,) = process.spans.mains
    assert (main.layer, main.truncated) == ("user", False)
    (joined,) = process.named(kinds.JOIN_RANKS)
    assert (joined.rendezvous, type(joined.call)) == (kinds.JOIN_RANKS, int)
    assert len(process.named(kinds.INPUT_WAIT)) == 8
    assert [i.attrs["epoch"] for i in process.instants if i.name == kinds.OWN_EPOCH_DONE] == [1, 2]
    assert process.instant(kinds.STEPS_UNKNOWN) is None


def test_a_training_process_that_fails_records_its_error(tmp_path: Path) -> None:
    done, process = rank(tmp_path, "import torch\nraise ValueError('no data')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no data\n")
    assert process.instant(kinds.RANK_FAILED).attrs["cause"] == "ValueError: no data"


def test_an_agent_without_torch_records_the_missing_module(tmp_path: Path) -> None:
    words = ["-m", "torch.distributed.run"]
    done, (agent,) = run(tmp_path / "with", words)
    assert (done.returncode, agent.process.role) == (0, kinds.TORCHRUN_ROLE), done.stderr
    assert agent.instant(kinds.RANK_FAILED) is None
    assert agent.instant(kinds.TORCHRUN_CALLED).attrs == {"pid": 7}
    done, (agent,) = run(tmp_path / "without", words, {})
    assert done.returncode == 1
    assert agent.instant(kinds.RANK_FAILED).attrs["cause"].startswith("ModuleNotFoundError: No module named 'torch'; ")


def test_other_subprocesses_record_nothing(tmp_path: Path) -> None:
    done, processes = run(tmp_path, ["-c", "print(1)"])
    assert (done.stdout, processes) == ("1\n", [])
