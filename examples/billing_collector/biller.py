"""The biller: reads clicks in order, and books each with the progress in one transaction of its database."""

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Final

from examples.effectively_once.sqlite_progress import SqliteProgress
from kinesis_spout import KinesisSpout, Record, SpoutConfig, open_ports

APP: Final = "billing"
FIRST_CLICKS: Final = 20
"""So many clicks of a customer cost more than the later ones: the bill depends on how many were booked before."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS click (
    id TEXT PRIMARY KEY, customer TEXT, collector TEXT, number INTEGER, cents INTEGER, biller TEXT
);
CREATE TABLE IF NOT EXISTS bill (customer TEXT PRIMARY KEY, clicks INTEGER, cents INTEGER);
"""


def price(clicks_before: int) -> int:
    """Give what a click costs, in cents."""
    return 5 if clicks_before < FIRST_CLICKS else 3


def make_tables(path: Path) -> None:
    """Prepare the database of the bills."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(_TABLES)
    db.close()


def book(db: sqlite3.Connection, record: Record, biller: str) -> None:
    """Book a click, unless the collector sent it before: its own id says so, which two records then share."""
    click = json.loads(record.data)
    customer = click["customer"]
    row = db.execute("SELECT clicks FROM bill WHERE customer = ?", (customer,)).fetchone()
    cents = price(row[0] if row else 0)
    new = db.execute(
        "INSERT INTO click VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (click["id"], customer, click["collector"], click["number"], cents, biller),
    )
    if new.rowcount:
        db.execute(
            "INSERT INTO bill VALUES (?, 1, ?) ON CONFLICT (customer) DO UPDATE "
            "SET clicks = clicks + 1, cents = cents + excluded.cents",
            (customer, cents),
        )


def bill(config: SpoutConfig, path: Path, biller: str) -> None:
    """Bill until killed. ``mode="standby"`` in the settings makes it wait until no other biller is alive."""
    progress = SqliteProgress(path, app=APP, stream=config.stream_name)
    spout = KinesisSpout(config=config, ports=progress.instead_of(open_ports(config)))
    with spout.open() as tuples:
        for message_id, record in tuples:
            progress.finish(tuples, message_id, record, partial(book, record=record, biller=biller))
