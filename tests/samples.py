"""Lines of resources.jsonl, as the sampler of a machine writes them."""

from __future__ import annotations

import json
from typing import Any

S = 1_000_000_000
MB = 1_000_000


def host(**changed: Any) -> str:
    line = {"k": "host", "host": "h", "domain": "d", "machine": "m", "cores": 2, "memory_bytes": 8 * MB, "period_ns": S}
    more = {"roots": {"dlobd": 1, "datanode-1": 2}, "sampler": 3, "disks": [], "gpus": []}
    return json.dumps(line | more | changed)


def process(pid: int, parent: int, start_s: float | None = 0, **changed: Any) -> str:
    start_ns = None if start_s is None else int(start_s * S)
    line = {"k": "process", "pid": pid, "parent": parent, "start_ns": start_ns}
    return json.dumps(line | {"name": "p", "main_class": None, "executor": None} | changed)


def sample(at_s: float, busy_s: float, processes: dict[int, tuple[Any, ...]] | None = None, **changed: Any) -> str:
    """A sample; a process is its CPU seconds, those that it reaped, and further columns if they matter."""
    rows = {}
    for pid, (cpu_s, reaped_s, *more) in (processes or {}).items():
        rows[pid] = [int(cpu_s * S), 0, int(reaped_s * S), *(more or [MB, 0, 0])]
    line = {"k": "sample", "t": int(at_s * S), "cpu": [int(busy_s * S), 0, 0], "memory": MB, "disk": None}
    return json.dumps(line | {"net": {}, "gpu": [], "p": rows, "cost": 0} | changed)
