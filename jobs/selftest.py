"""User's script with two delays, for `dlobd selftest --full`. Usage: DIRECTORY

It does not use TensorFlowOnSpark: all its time is user code, on the driver and in a function of a Spark task."""

import json
import sys
from pathlib import Path

from pyspark import SparkContext

from dlobd.faults import injection_log


def main(directory: Path) -> None:
    """Delay the driver between two Spark calls, and then delay a task."""
    plan = json.loads((directory / "plan.json").read_text())

    def delayed(number: int) -> int:
        injection_log.inject(directory, "user/task", plan["user/task"][0])
        return number

    sc = SparkContext(appName="selftest")
    injection_log.inject(directory, "user/script", plan["user/script"][0])
    assert sc.parallelize([7], 1).map(delayed).collect() == [7]
    sc.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
