"""spark-submit entry: micro-benchmarks between executors. Usage: jobs/micro.py, then arguments of `dlobd micro`."""

import sys

from dlobd.cli.main import main  # noqa: TID251  the job's arguments are those of the command

if __name__ == "__main__":
    sys.exit(main(["micro", *sys.argv[1:], "--on", "spark"]))
