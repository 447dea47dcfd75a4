"""Measures commands over grown bundles: CPU time and peak memory of each, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.scale.grow import Size, grow
from dlobd.bundle import files
from dlobd.paths import replace_file

MEMORY_BYTES, CPU_S = 16 << 30, 900
"""Limits of each process: address space, and CPU time."""

LIMITED = Path(__file__).with_name("limited.py")

TWIN = "20260101T000000Z-ffff"
"""Run ID of the copy of a record with which its run is compared."""

LONG = {
    "10^4": Size(8, 1, 230),
    "10^5": Size(16, 1, 1_240),
    "10^6": Size(32, 1, 6_240),
    "10^7": Size(64, 1, 31_230),
}
"""Runs with one feed task per executor, which grow in length; with more executors too, as real runs have."""

WIDE = {"100 x 64": Size(100, 62, 3), "1,000 x 64": Size(1000, 62, 3)}
"""Runs with 64 tasks per executor: 62 feed tasks, and one each of the stages before and after."""

Measured = dict[str, Any]
"""Figures of a command: `cpu_s` and `peak_bytes`, or `aborted` with the reason."""


@dataclass(frozen=True, slots=True)
class Work:
    """A measured command: its title, and its arguments for a bundle and an output directory."""

    title: str
    arguments: Callable[[Path, Path], Sequence[str | Path]]


def _dlobd(name: str, *more: str, output: str = "") -> Callable[[Path, Path], Sequence[str | Path]]:
    def arguments(bundle: Path, out: Path) -> Sequence[str | Path]:
        return ("-m", "dlobd", name, bundle, *more, *(("-o", out / output, "--force") if output else ()))

    return arguments


def _own(name: str) -> Callable[[Path, Path], Sequence[str | Path]]:
    return lambda bundle, out: ("-m", "bench.scale.work", name, bundle)


WORK = (
    Work("read by polars", _own("polars")),
    Work("kernel", _own("kernel")),
    Work("record", _own("record")),
    Work("show", _dlobd("show")),
    Work("verify", _dlobd("verify")),
    Work("compare", lambda bundle, out: ("-m", "dlobd", "compare", bundle, bundle.with_name(TWIN))),
    Work("report", _dlobd("report", output="report.html")),
    Work("trace", _dlobd("trace", output="trace.json")),
    Work("export", _dlobd("export", "--format", "spans", output="spans.parquet")),
)
"""The measured commands, in their order. The record is the first that writes the report of the grown run."""


def measured(out: Path, size: Size, progress: Callable[[str], None]) -> Measured:
    """Measure all commands over a bundle of a size, which is generated below `out`; keep figures that are there."""
    kept = out / f"{size.executors}-{size.tasks}-{size.steps}"
    path = kept / "measured.json"
    found: Measured = json.loads(path.read_text()) if path.exists() else {"commands": {}}
    bundle = kept / "20260101T000000Z-0001"
    if not (bundle / files.HASHES).exists():
        shutil.rmtree(bundle, ignore_errors=True)
        progress(f"generate {bundle}")
        grow(size, bundle)
    found |= {"size": size._asdict(), "bytes": sum(path.stat().st_size for path in bundle.glob("spans/*/*"))}
    for work in WORK:
        if work.title not in found["commands"]:
            progress(f"{work.title}: {bundle}")
            if work.title == "compare":
                twin(bundle)
            figures, output = run(work.arguments(bundle, kept))
            found["commands"][work.title] = figures
            if work.title == "kernel" and output.isdigit():
                found["spans"] = int(output)
            replace_file(path, json.dumps(found, indent=1).encode())
    return found


def twin(bundle: Path) -> None:
    """Write a copy of a bundle's record as that of another run, beside the bundle."""
    record = json.loads((bundle / files.RUN).read_text())
    other = bundle.with_name(TWIN)
    other.mkdir(exist_ok=True)
    (other / files.RUN).write_text(json.dumps({**record, "run_id": TWIN}))


def run(arguments: Sequence[str | Path], memory_bytes: int = MEMORY_BYTES, cpu_s: int = CPU_S) -> tuple[Measured, str]:
    """Run Python with arguments within the limits; return its figures and its output."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "figures.json"
        command = (sys.executable, "-I", "-S", LIMITED, path, str(memory_bytes), str(cpu_s), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        figures: Measured = json.loads(path.read_text())
    lines = done.stderr.strip().splitlines()
    if done.returncode:
        reason = lines[-1][-200:] if lines else "a signal ended it"
        if figures["cpu_s"] >= cpu_s - 1:
            reason = f"more than {cpu_s} s of CPU"
        elif any("MemoryError" in line or "MB of memory" in line for line in lines):
            reason = f"more than {memory_bytes / 2**30:g} GiB"
        figures["aborted"] = reason
    return figures, done.stdout.strip()
