"""spark-submit entry: generates a data set on the nodes. Usage: spark-submit ... jobs/generate.py REQUEST.json"""

import sys

from dlobd.job.generation import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
