"""Entry point of `python -m dlobd`, which is the same as `dlobd`."""

import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    # before any import of code that an older Python cannot parse
    sys.stderr.write(
        "dlobd: Python 3.11, 3.12 or 3.13 is needed; this is " + sys.version.split()[0] + ". "
        "Next: install dlobd for one of these versions.\n"
    )
    sys.exit(3)

from dlobd.cli import main

if __name__ == "__main__":
    sys.exit(main())
