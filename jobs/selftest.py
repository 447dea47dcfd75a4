"""User's script with three delays, for `dlobd selftest --full`. Usage: DIRECTORY

It does not use TensorFlowOnSpark: all its time is user code, on the driver, in a function of a Spark task, and in an
import of this function."""

import importlib
import json
import sys
from pathlib import Path

from pyspark import SparkContext

from dlobd.faults import injection_log


class SlowImport:
    """Object that imports a module of `directory`, which is in PYTHONPATH, when a worker unpickles it."""

    def __init__(self, directory: Path, seconds: float) -> None:
        imports = "from pathlib import Path\nfrom dlobd.faults import injection_log\n"
        delay = f"injection_log.inject(Path({str(directory)!r}), 'user/import', {seconds})\n"
        (directory / "slow_import.py").write_text(imports + delay)

    def __reduce__(self) -> tuple[object, ...]:
        return importlib.import_module, ("slow_import",)


def main(directory: Path) -> None:
    """Delay the driver between two Spark calls, and then delay an import and a task."""
    plan = json.loads((directory / "plan.json").read_text())
    slow_import = SlowImport(directory, plan["user/import"][0])

    def delayed(number: int) -> int:
        assert slow_import
        injection_log.inject(directory, "user/task", plan["user/task"][0])
        return number

    sc = SparkContext(appName="selftest")
    injection_log.inject(directory, "user/script", plan["user/script"][0])
    assert sc.parallelize([7], 1).map(delayed).collect() == [7]
    sc.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
