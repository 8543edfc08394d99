"""Payments that are added to accounts. An addition done twice is wrong for ever, so each must be done once."""

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from examples.effectively_once.sqlite_progress import SqliteProgress
from kinesis_spout import Emitted, KinesisSpout, Ports, Record

APP: Final = "bank"
STREAM: Final = "payments"
_FAILS: Final = 0.1
"""How often a first attempt fails."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, balance INTEGER, payments INTEGER);
CREATE TABLE IF NOT EXISTS paid (id TEXT PRIMARY KEY);
"""

Consumer = Callable[[Path, Ports], None]
"""Books every payment that was on the stream when it began, into the database of the path, and returns."""


def make_tables(path: Path) -> None:
    """Prepare a bank's database."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(_TABLES)
    db.close()


def add(db: sqlite3.Connection, record: Record) -> None:
    """Book a payment: no part of this is idempotent."""
    payment = json.loads(record.data)
    db.execute(
        "INSERT INTO account VALUES (?, ?, 1) ON CONFLICT (name) DO UPDATE "
        "SET balance = balance + excluded.balance, payments = payments + 1",
        (payment["account"], payment["amount"]),
    )


def in_one_transaction(path: Path, ports: Ports) -> None:
    """Book each payment in the transaction that stores the progress."""
    progress = SqliteProgress(path, app=APP, stream=STREAM)
    spout = _spout(progress.instead_of(ports))

    def book(message_id: str, record: Record) -> None:
        progress.finish(spout, message_id, record, lambda db: add(db, record))

    _handle_all(spout, book)


def by_its_key(path: Path, ports: Ports) -> None:
    """Book each payment in a transaction of its own, with the record's id as the key that refuses a second one."""
    spout, db = _spout(ports), sqlite3.connect(path, isolation_level=None)

    def book(message_id: str, record: Record) -> None:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("INSERT INTO paid VALUES (?) ON CONFLICT DO NOTHING", (record.message_id,)).rowcount:
            add(db, record)
        db.execute("COMMIT")
        spout.ack(message_id)

    _handle_all(spout, book)


def carelessly(path: Path, ports: Ports) -> None:
    """Book each payment and then ack it: what most programs do. Wrong after a kill, and here to show it."""
    spout, db = _spout(ports), sqlite3.connect(path, isolation_level=None)

    def book(message_id: str, record: Record) -> None:
        add(db, record)
        spout.ack(message_id)

    _handle_all(spout, book)


def _spout(ports: Ports) -> KinesisSpout:
    return KinesisSpout(
        ports=ports,
        stream=STREAM,
        app=APP,
        initial_position="trim_horizon",
        until="latest",
        commit_interval_seconds=0.02,
        retry_backoff_seconds=0.01,
    )


def _handle_all(spout: KinesisSpout, book: Callable[[str, Record], None]) -> None:
    """Take a few payments at a time and handle them in no order, one in ten only at the second attempt.

    So there are holes at every moment: payments that are finished although one before them is not.
    """
    chance = random.Random()
    with spout.open() as tuples:
        emitted = iter(tuples)
        while some := _some(tuples, emitted):
            chance.shuffle(some)
            for message_id, record in some:
                if record.attempt == 1 and chance.random() < _FAILS:
                    tuples.fail(message_id, "the bank is busy")
                else:
                    book(message_id, record)


def _some(spout: KinesisSpout, emitted: Iterator[Emitted]) -> list[Emitted]:
    """Wait for a payment, and take what is there besides; nothing at the end of the run."""
    some = list(islice(emitted, 1))
    if some:
        some += [each for _ in range(9) if (each := spout.next_tuple()) is not None]
    return some
