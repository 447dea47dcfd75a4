"""`python -m dlobd` is `dlobd`."""

import sys

from dlobd.cli import main

if __name__ == "__main__":
    sys.exit(main())
