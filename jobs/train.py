"""spark-submit entry: runs the training job that a JSON file describes. Usage: spark-submit ... jobs/train.py JOB.json"""

import sys

from dlobd.job.training.driver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
