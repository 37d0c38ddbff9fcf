"""Run the command line with python -m qdebug."""

import sys

from qdebug.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
