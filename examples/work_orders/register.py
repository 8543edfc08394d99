"""Which rule has which slot: a database that refuses a leader whose term is over."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TABLES = """
CREATE TABLE IF NOT EXISTS term (only INTEGER PRIMARY KEY CHECK (only = 1), token INTEGER);
INSERT OR IGNORE INTO term VALUES (1, 0);
CREATE TABLE IF NOT EXISTS slot (
    device TEXT, number INTEGER, rule TEXT UNIQUE, token INTEGER, PRIMARY KEY (device, number)
);
"""


class TermOver(Exception):  # noqa: N818 - the names say what happened
    """A leader with a larger token was here: this one must write no more."""


class Slot(NamedTuple):
    """A place for one rule on one device."""

    device: str
    number: int


class Register:
    """One process's connection to the register. Mutable; one thread's at a time."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.executescript(_TABLES)

    def begin_term(self, token: int) -> dict[str, Slot]:
        """Refuse all smaller tokens from now on, and read what was allocated before.

        Raises:
            TermOver: the token is not larger than every one before.
        """
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if not self._db.execute("UPDATE term SET token = ? WHERE token < ?", (token, token)).rowcount:
                raise TermOver(f"expected a token above those before, got {token}")
            rows = self._db.execute("SELECT rule, device, number FROM slot").fetchall()
        return {rule: Slot(device, number) for rule, device, number in rows}

    def allocate(self, token: int, chosen: Iterable[tuple[str, Slot]]) -> None:
        """Write several allocations, all or none.

        Raises:
            TermOver: a later leader is in office, also if it came into it this very moment.
        """
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            (newest,) = self._db.execute("SELECT token FROM term").fetchone()
            if newest != token:
                raise TermOver(f"expected to hold term {newest}, got {token}")
            rows = [(slot.device, slot.number, rule, token) for rule, slot in chosen]
            self._db.executemany("INSERT INTO slot VALUES (?, ?, ?, ?)", rows)

    def allocated(self) -> list[tuple[str, Slot, int]]:
        """Give every allocation: the rule, its slot, and the token of the term it was made in."""
        rows = self._db.execute("SELECT rule, device, number, token FROM slot ORDER BY rowid").fetchall()
        return [(rule, Slot(device, number), token) for rule, device, number, token in rows]

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
