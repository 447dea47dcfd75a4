"""Ways of running in fresh processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dlobd.paths import shipped
from dlobd.run.schedulers.yarn import GPUS


@pytest.mark.parametrize(
    ("visible", "addresses"),
    [({}, ["0", "3"]), ({"CUDA_VISIBLE_DEVICES": "3"}, ["3"]), ({"CUDA_VISIBLE_DEVICES": ""}, [])],
)
def test_a_container_says_which_gpus_it_has(tmp_path: Path, visible: dict[str, str], addresses: list[str]) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf '0\\n3\\n'\n")
    smi.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    said = subprocess.run(
        [shipped("jobs") / GPUS], capture_output=True, check=True, timeout=20, env={"PATH": path, **visible}
    ).stdout
    assert json.loads(said) == {"name": "gpu", "addresses": addresses}
