"""Prints what the tests need beside the package: ``python tests/needed_by_tests.py --without NAME ...``.

One requirement a line, of the extras ``dev`` and ``demo``, without those whose names begin with a NAME.
"""

import argparse
import tomllib
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME")
    without = tuple(parser.parse_args().without)
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    print(*(line for line in extras["dev"] + extras["demo"] if not line.startswith(without)), sep="\n")
