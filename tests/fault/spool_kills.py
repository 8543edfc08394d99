"""A process with a spool, killed again and again at any moment: no record that it took over may be lost.

    python -m tests.fault.spool_kills --kills 100 [--seed 7] [--durability system]

Each process takes over what those before it have left, confirms some of it, and meanwhile appends from several
threads, which confirm a half. It tells what was taken over, and what it is about to confirm. It is killed at a
moment drawn by chance, also while it opens, recovers, and removes. At the end one process recovers all. The
exit code is 1 if anything is missing that was taken over, and that nobody began to confirm; under "interval"
that is to be expected.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import DiskSpool, Durability, Spooled
from tests.fault.killed_process import tell, told_until_killed

THREADS = 4
AT_ONCE = 16
LONGEST_SECONDS = 0.6
"""What a process lives, at most."""
SHOWN_EVERY = 20


@dataclass(slots=True)
class Ledger:
    """What the processes have told. Mutable."""

    taken_over: set[str] = field(default_factory=set)
    maybe_confirmed: set[str] = field(default_factory=set)
    killed_while: Counter[str] = field(default_factory=Counter)

    def note(self, told: bytes) -> None:
        """Add what one process told until it was killed; its last line may be cut off."""
        doing = "opening"
        for line in told.split(b"\n")[:-1]:
            kind, _, text = line.decode().partition(" ")
            match kind:
                case "taken":
                    self.taken_over.add(text)
                case "confirm":
                    self.maybe_confirmed.add(text)
                case "doing":
                    doing = text
        self.killed_while[doing] += 1

    @property
    def owed(self) -> set[str]:
        """What must still be in the spool."""
        return self.taken_over - self.maybe_confirmed


def work(folder: Path, durability: Durability, name: str, pipe: int) -> None:
    """Be a process of the user's, until somebody kills it."""
    draws = random.Random(name)
    spool = DiskSpool(folder, stream="orders", durability=durability)
    tell(pipe, "doing recovering, appending")

    def append(thread: int) -> None:
        mine = random.Random(f"{name} {thread}")
        for index in range(1_000_000):
            text = f"{name}-{thread}-{index}"
            entry = Entry(text, mine.randbytes(mine.choice([10, 100, 1_000, 20_000])))
            number = spool.append(entry)
            tell(pipe, f"taken {text}")
            if mine.random() < 0.5:
                confirm(spool, [Spooled(number, entry)], pipe)

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(THREADS)]
    for each in threads:
        each.start()
    while records := spool.recovered(AT_ONCE):
        confirm(spool, draws.sample(records, len(records) // 4), pipe)
    tell(pipe, "doing appending only")
    for each in threads:
        each.join()


def confirm(spool: DiskSpool, records: list[Spooled], pipe: int) -> None:
    """Say so first: from then on they may come again, or not."""
    tell(pipe, *(f"confirm {record.entry.partition_key}" for record in records))
    spool.confirm([record.number for record in records])


def recovered(folder: Path) -> Iterator[str]:
    with DiskSpool(folder, stream="orders") as spool:
        while records := spool.recovered(1000):
            yield from (record.entry.partition_key for record in records)
            spool.confirm([record.number for record in records])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--durability", choices=[*Durability], default=Durability.RECORD)
    arguments = parser.parse_args()
    draws = random.Random(arguments.seed)
    ledger = Ledger()
    told = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="spool-kills-") as directory:
        folder = Path(directory) / "spool"
        for number in range(1, arguments.kills + 1):
            seconds = draws.random() ** 2 * LONGEST_SECONDS  # the beginnings are where most can go wrong
            durability = Durability(arguments.durability)
            name = f"{arguments.seed}-{number}"
            ledger.note(told_until_killed(partial(work, folder, durability, name), seconds))
            if number % SHOWN_EVERY == 0:
                told.print(f"{number} kills, {len(ledger.taken_over):,} records")
        started = time.monotonic()
        try:
            found = Counter(recovered(folder))
        except SpoolError as error:
            raise SystemExit(f"seed {arguments.seed}: {error}") from error
        left = [each.name for each in folder.iterdir() if each.name != "stream.json"]
    lost = ledger.owed - set(found)
    Console(soft_wrap=True).print(
        f"seed {arguments.seed}: {arguments.kills} kills ({dict(ledger.killed_while)}), "
        f"{len(ledger.taken_over):,} records taken over, {len(ledger.owed):,} of them not confirmed, "
        f"{len(lost)} lost; {found.total():,} recovered in {time.monotonic() - started:.1f} s, "
        f"{found.total() - len(found)} of them twice; files left: {left}",
        highlight=False,
        markup=False,
    )
    sys.exit(bool(lost or left))


if __name__ == "__main__":
    main()
