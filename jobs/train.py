"""spark-submit entry: runs the training job of a JSON file. Usage: spark-submit ... jobs/train.py JOB.json"""

import sys

from dlobd.job.training.driver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
