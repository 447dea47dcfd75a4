"""TensorFlowOnSpark 2.2.5 as published, so that numbers are its own: the reference for what `tfos` and `barrier` save.

It is only made importable (a stand-in for pkg_resources, on the driver and on the executors). TensorFlow is imported on
the driver and in every Python worker, hosts are chosen by the default route, and all polls and sleeps are as they are.

We record, and change nothing: spans around TFCluster.run, train and shutdown on the driver, around its start and feed
tasks on the executors, and around the import of TensorFlow. What happens inside a start task beside that import (the
queue manager, the rendezvous with its polls, the fork) is not told apart: it stays `launcher`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from dlobd import trace
from dlobd.launchers.tfos import TfosLauncher, record_driver
from dlobd.launchers.tfos_compat import provide_pkg_resources

DRIVER_OVERHEAD_MB = 1024
"""Room beside the driver's heap for a Python that has imported TensorFlow."""


class TfosStockLauncher(TfosLauncher):
    """See the module; roles, feed and done-markers as with `tfos`."""

    def spark_conf(self) -> dict[str, str]:
        """As for `tfos`, but the worker daemon only records and makes TensorFlowOnSpark importable."""
        return {
            **super().spark_conf(),
            "spark.python.daemon.module": "dlobd.launchers.tfos_stock_daemon",
            # in cluster mode YARN counts the driver's TensorFlow too
            "spark.driver.memoryOverhead": f"{DRIVER_OVERHEAD_MB}m",
        }

    def _prepared(self) -> Any:
        install()
        from tensorflowonspark import TFCluster, TFSparkNode, reservation

        record_driver(TFCluster, TFSparkNode, reservation)
        original_run = TFSparkNode.run

        def run(*args: Any, **kwargs: Any) -> _StartTask:
            return _StartTask(original_run(*args, **kwargs))

        TFSparkNode.run = run
        return TFCluster


class _StartTask:
    """TFSparkNode.run's function for one executor, as a whole."""

    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self._inner = inner

    def __call__(self, executor_ids: Any) -> Any:
        with trace.span("launcher", "start task"):
            return self._inner(executor_ids)


def install() -> None:
    """Makes TensorFlowOnSpark importable in this process and its forks; imports nothing."""
    provide_pkg_resources()
    sys.meta_path.insert(0, _TensorFlowImport())


class _TensorFlowImport(importlib.abc.MetaPathFinder):
    """Records the import of TensorFlow, whoever asks for it first; finds nothing itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            original = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with trace.span("tensorflow", "import tensorflow"):
                    original(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
