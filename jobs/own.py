"""spark-submit entry: records the user's own script. Usage: jobs/own.py LAUNCHER SPANS_DIR SCRIPT ARGUMENTS..."""

import sys

from dlobd.job.own.script import main

if __name__ == "__main__":
    main(sys.argv[1:])
