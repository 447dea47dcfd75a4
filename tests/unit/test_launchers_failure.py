"""The exit status of a trainer process."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.job.launchers import failure
from dlobd.job.launchers.failure import MemoryGroup, exit_status

V1 = {
    "proc/self/cgroup": "9:name=systemd:/docker/0a\n4:memory:/docker/0a\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1000 << 20}\n",
}
"""As a container with its own mount sees it: the path is the machine's."""

V2 = {
    "proc/self/cgroup": "0::/user.slice\n",
    "sys/fs/cgroup/user.slice/memory.events": "low 0\noom 3\noom_kill 1\noom_group_kill 0\n",
    "sys/fs/cgroup/user.slice/memory.max": "max\n",
}


OUT_OF_MEMORY = "by the kernel: out of memory in the control group of its host"


def tree(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def test_control_groups_of_both_versions(tmp_path: Path) -> None:
    assert MemoryGroup.read(tree(tmp_path / "v1", V1)) == MemoryGroup(2, 1000)
    assert MemoryGroup.read(tree(tmp_path / "v2", V2)) == MemoryGroup(1, None)
    assert MemoryGroup.read(tmp_path / "none") == MemoryGroup(None, None)


@pytest.mark.parametrize(
    ("code", "before", "words"),
    [
        (3, 0, "exit code 3"),
        (-15, 0, "killed by signal 15"),
        (-9, 2, "killed by signal 9"),
        (-9, 1, f"killed by signal 9 ({OUT_OF_MEMORY}, whose limit is 1000 MB)"),
    ],
)
def test_a_kill_by_the_kernel_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, before: int, words: str
) -> None:
    now = MemoryGroup.read(tree(tmp_path, V1))
    monkeypatch.setattr(failure.MemoryGroup, "read", lambda: now)
    assert exit_status(code, MemoryGroup(before, 1000)) == words
