"""Real training over a slow loopback, and latencies of the same loopback in launches of their own.

Runs are native, so that the exchange is the only traffic. Both ranks share the loopback, so that its rate, and not the
cores, limits the exchange.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.studies import exchange_prediction
from analysis.studies.script import Shown
from bench import command
from bench.models import POINTS
from bench.narrow_loopback import narrow_loopback
from bench.pathologies.stage import bundle_named
from dlobd.errors import RunFailed
from dlobd.micro import results, study
from dlobd.micro.hosts import Host
from dlobd.micro.request import Request
from dlobd.paths import replace_file

RATES = ("100mbit", "400mbit")
MODELS = ("softmax-regression", "mlp", "lenet", "cifar10-quick", "resnet20", "alexnet-cifar")
"""Models whose exchanges take less than 3 s at the lowest rate."""

EXCHANGES = ("ring", "halving-doubling", "ps")
STEPS = "max_steps=20 train_samples=6400 test_samples=200 epochs=1 min_accuracy=0 warmup_epochs=0 launcher=native"
STEPS += " evaluate_every_epochs=0 timeout_s=240"
SIZES = "8,64K,256K,1M,4M"
SECONDS = 0.3
LONGEST_S = 600.0  # longer than the run's own limit, so that the run ends itself

Link = list[Path]
"""File with the latencies of a link, and the bundles of its runs."""


def measure(out: Path, launches: int, progress: Callable[[str], None]) -> list[Link]:
    """Measure each link, and train each model with each exchange over it. What exists in `out` is not repeated.

    Raises SetupError: namespaces cannot be created, or a launch failed. RunFailed: a run failed.
    """
    links = []
    for rate in RATES:
        with narrow_loopback(rate) as host:
            directory = out / rate
            directory.mkdir(parents=True, exist_ok=True)
            progress(f"latencies at {rate}")
            latencies = _latencies(directory.with_suffix(".json"), host, launches)
            runs = []
            for model in MODELS:
                for exchange in EXCHANGES:
                    progress(f"{model}, {exchange}, at {rate}")
                    runs.append(_run(directory / f"{model}-{exchange}", host, model, exchange))
        links.append([latencies, *runs])
    return links


def report(links: Sequence[Link]) -> Shown:
    """Return table and picture of the predictions."""
    return exchange_prediction.report(Namespace(link=links))


def settings_of(model: str, exchange: str) -> list[str]:
    """Return the shipped experiment of a run, and its changed settings."""
    return f"{POINTS[model]} {STEPS} exchange={exchange}".split()


def _latencies(path: Path, host: Host, launches: int) -> Path:
    if not path.exists():
        request = Request(("latency",), ("tcp",), ("sockets",), sizes=SIZES, seconds=SECONDS)
        plans = [(plan, [host, host]) for plan in request.plans(())[0]]
        empty = results.empty("", results.NAMESPACES, 2)
        found = command.completed(study.run(empty, plans, launches, lambda _: None))
        replace_file(path, found.text().encode())
    return path


def _run(out: Path, host: Host, model: str, exchange: str) -> Path:
    """Train a model, and return its bundle."""
    kept = sorted(out.glob("*/*/run.json"))
    if kept:
        return kept[-1].parent
    shipped, *settings = settings_of(model, exchange)
    words = ["run", shipped, *(word for setting in settings for word in ("--set", setting)), "--out", str(out)]
    done = subprocess.run(
        [*host.command, sys.executable, "-m", "dlobd", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    bundle = bundle_named(done.stdout)
    if done.returncode or bundle is None:
        why = done.stderr.strip().splitlines()[-1:]
        raise RunFailed(f"{model} with {exchange} failed: {' '.join(why)}.")
    return bundle
