"""``python -m examples.effectively_once [KILLS]``: kills consumers of payments, and checks every account.

The stream is in memory, and each consumer gets a copy of the same one. ZooKeeper is in memory too, and a new one:
after every kill it is as if it had lost everything. The database is a file, and all that survives.
"""

import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from examples.effectively_once.payments import (
    STREAM,
    Consumer,
    by_its_key,
    carelessly,
    in_one_transaction,
    make_tables,
)
from kinesis_spout.testing import InMemoryStream, InMemoryZooKeeper, in_memory_ports

PAYMENTS: Final = 900
KILLS: Final = 4
_DEADLINE_SECONDS: Final = 60.0

WAYS: Final[dict[str, Consumer]] = {
    "effect and progress in one transaction": in_one_transaction,
    "a key for each record": by_its_key,
    "neither (as a warning)": carelessly,
}


def filled_stream(payments: int) -> tuple[InMemoryStream, Counter[str]]:
    """Give a stream with payments, and what each account must have in the end."""
    stream, expected, chance = InMemoryStream(STREAM, shards=2), Counter[str](), random.Random(14)
    for number in range(payments):
        account, amount = f"account-{chance.randrange(20)}", chance.randrange(1, 100)
        expected[account] += amount
        stream.put(json.dumps({"account": account, "amount": amount}).encode(), f"payer-{number}")
    return stream, expected


def survive(consume: Consumer, path: Path, stream: InMemoryStream, kills: int, payments: int) -> list[int]:
    """Kill consumers at random moments, and let the last one end; give how much was booked at each kill."""
    make_tables(path)
    booked_at = []
    for number in range(1, kills + 1):
        process = _start(consume, path, stream)
        _await_booked(path, payments * number // (kills + 2))
        time.sleep(random.uniform(0.0, 0.03))
        process.kill()
        process.join()
        booked_at.append(booked(path))
    process = _start(consume, path, stream)
    process.join(_DEADLINE_SECONDS)
    if process.exitcode != 0:
        raise SystemExit(f"the last consumer ended with {process.exitcode}")
    return booked_at


def booked(path: Path) -> int:
    """Count the payments that took effect."""
    ((count,),) = _rows(path, "SELECT coalesce(sum(payments), 0) FROM account")
    return int(count)


def balances(path: Path) -> dict[str, int]:
    """Read every account."""
    return dict(_rows(path, "SELECT name, balance FROM account"))


def _rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    rows: list[tuple[Any, ...]] = db.execute(sql).fetchall()
    db.close()
    return rows


def _start(consume: Consumer, path: Path, stream: InMemoryStream) -> multiprocessing.process.BaseProcess:
    # Forked, so that every consumer reads this very stream. This process has no threads.
    process = multiprocessing.get_context("fork").Process(
        target=lambda: consume(path, in_memory_ports(stream, InMemoryZooKeeper())), daemon=True
    )
    process.start()
    return process


def _await_booked(path: Path, least: int) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while booked(path) < least:
        if time.monotonic() > deadline:
            raise SystemExit(
                f"expected {least} payments booked in {_DEADLINE_SECONDS:g} s, got {booked(path)}"
            )
        time.sleep(0.005)


def main(kills: int = KILLS) -> None:
    """Try each way, and print what came of it."""
    stream, expected = filled_stream(PAYMENTS)
    print(
        f"{PAYMENTS:,} payments to {len(expected)} accounts; every consumer but the last is killed (kill -9).\n"
    )
    results = {}
    for way, consume in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bank.db"
            at_kills = survive(consume, path, stream, kills, PAYMENTS)
            results[way] = balances(path) == expected
            print(f"{way}:")
            print(f"  booked at the kills: {', '.join(map(str, at_kills))}; in the end: {booked(path):,}")
            print(
                f"  every account {'is exact' if results[way] else 'is NOT exact: payments were booked twice'}\n"
            )
    *honest, careless = results.values()
    if not all(honest) or careless:
        sys.exit("expected exact accounts in the first two ways, and wrong ones in the last")
    print("Checked: in both honest ways every payment was booked exactly once.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
