"""Prints how large the product and its tests are, and refuses a public class name that stands for two things.

``python -m tests.sizes``; ends with 1 for a name that is not in ``KNOWN``.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHEEL = ("kinesis_spout", "shard_state", "pyspark_kinesis", "pyspark_kinesis_spout")
_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)

_STORMS = {"BasicBolt", "Bolt", "Spout"}
"""Storm's own names, for components here and for those of other languages."""
KNOWN = _STORMS | {
    "Delivery",
    "FailedRecord",
}
"""Names that may stand twice. Nothing is added here: one of the two is renamed."""


def names_that_stand_twice(files: Iterable[Path]) -> Mapping[str, Sequence[Path]]:
    """Give the public classes that more than one file defines, with these files."""
    places: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        for name in _CLASS.findall(file.read_text()):
            places[name].append(file)
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def main() -> int:
    python = [file for package in WHEEL for file in _files(package, "*.py")]
    native = [file for package in WHEEL for file in _files(package, "*.c")]
    tests = _files("tests", "*.py")
    twice = names_that_stand_twice(python)
    packages = {file.parent for file in python}
    print(
        f"the wheel: {_lines(python):,} lines of Python in {len(python)} files and {len(packages)} packages"
    )
    print(f"           {_lines(native):,} lines of C")
    print(f"tests:     {_lines(tests):,} lines in {len(tests)} files")
    print(f"names:     {len(twice)} public class names stand for two things")
    if gone := sorted(KNOWN - {*twice}):
        print(f"           no more twice, so to be removed from tests/sizes.py: {', '.join(gone)}")
    new = [name for name in twice if name not in KNOWN]
    for name in new:
        places = " and ".join(str(file.relative_to(ROOT)) for file in twice[name])
        print(f"expected {name} to name one thing, got {places}; rename one", file=sys.stderr)
    return 1 if new else 0


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted((ROOT / folder).rglob(pattern))


def _lines(files: Iterable[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


if __name__ == "__main__":
    sys.exit(main())
