"""spark-submit entry: runs and records a user's script. Usage: jobs/user.py LAUNCHER SPANS_DIR SCRIPT ARGUMENTS..."""

import sys

from dlobd.job.user.script import main

if __name__ == "__main__":
    main(sys.argv[1:])
