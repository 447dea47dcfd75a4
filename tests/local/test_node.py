"""The node program of docker/ as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import node


def test_a_command_has_the_clients_configuration(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from node import Node, run_command\n"
        f"run_command(['sh', '-c', 'echo $HADOOP_CONF_DIR'], Node('edge', 'e', 'm', Path({str(tmp_path)!r})))"
    )
    docker = Path(node.__file__).parent
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=docker)
    assert said.stdout.strip() == str(tmp_path / "conf" / "client")
