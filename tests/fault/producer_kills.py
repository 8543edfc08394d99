"""A process with a producer and a spool, killed again and again: each record that it took over is on the stream.

    python -m tests.fault.producer_kills --kills 100 [--seed 7]

Each process puts from several threads (one by one, 50 together, without a ticket), and sends what those before
it have left in the spool ("record"), to an endpoint that is unkind to a tenth of the calls. It is killed at a
moment drawn by chance. At the end one producer sends what is left. The exit code is 1 if a record is missing on
the stream whose ``put``, ``put_many`` or ``send`` has returned.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.producer import KinesisProducer
from kinesis_spout.producer.spool import DiskSpool
from tests.fault.killed_process import tell, told_until_killed
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.kinesis.unkind.weather import producer_weather

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

STREAM = "orders"
THREADS = 4
LONGEST_SECONDS = 2.0
SHOWN_EVERY = 20
DRAIN_SECONDS = 600.0
ONE_SECONDS = 60.0
_UNKIND_RATE = 0.1


def producer(client: "KinesisClient", folder: Path) -> KinesisProducer:
    return KinesisProducer(STREAM, client=client, spool=DiskSpool(folder, stream=STREAM), linger_seconds=0.02)


def work(client: "KinesisClient", folder: Path, name: str, pipe: int) -> None:
    """Be a process of the user's, until somebody kills it."""
    puts = producer(client, folder)

    def put(thread: int) -> None:
        mine = random.Random(f"{name} {thread}")
        for index in range(1_000_000):
            count = 50 if index % 5 == 4 else 1
            texts = [f"{name}-{thread}-{index}-{at}" for at in range(count)]
            records = [
                (text.encode().ljust(mine.choice([10, 100, 1_000])), f"customer-{mine.randrange(2000)}")
                for text in texts
            ]
            if count > 1:
                puts.put_many(records)
            elif index % 5:
                puts.put(*records[0])
            else:
                puts.send(*records[0])
            for text in texts:
                tell(pipe, text)

    threads = [threading.Thread(target=put, args=(thread,)) for thread in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def sent_by_the_last(settings: KinesisClientSettings, folder: Path) -> int:
    """Start producers until the spool is empty: what one could not send in its time stays for the next."""
    recovered = 0
    deadline = time.monotonic() + DRAIN_SECONDS
    while list(folder.glob("*.spool")) and time.monotonic() < deadline:
        with producer(settings.create(), folder) as last:
            end = time.monotonic() + ONE_SECONDS
            while len(list(folder.glob("*.spool"))) > 1 and time.monotonic() < end:
                time.sleep(0.1)
        recovered += last.counts().recovered
    return recovered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="producer-kills-") as directory:
        stream = Path(directory) / "stream"
        with UnkindEndpoint() as endpoint:
            endpoint.create_stream(name=STREAM, log=str(stream))
            producer_weather(endpoint, _UNKIND_RATE, str(arguments.seed))
            run(arguments.kills, arguments.seed, Path(directory) / "spool", endpoint.settings(), stream)


def run(kills: int, seed: int, folder: Path, settings: KinesisClientSettings, stream: Path) -> None:
    draws = random.Random(seed)
    unconnected = settings.create()  # two processes must not share a connection
    taken_over: set[str] = set()
    console = Console(stderr=True)
    for number in range(1, kills + 1):
        told = told_until_killed(
            partial(work, unconnected, folder, f"{seed}-{number}"), draws.random() ** 2 * LONGEST_SECONDS
        )
        taken_over.update(line.decode() for line in told.split(b"\n")[:-1])
        if number % SHOWN_EVERY == 0:
            console.print(f"{number} kills, {len(taken_over):,} records")
    recovered = sent_by_the_last(settings, folder)
    found = Counter(stream.read_text().splitlines())
    lost = taken_over - set(found)
    left = [each.name for each in folder.iterdir() if each.name != "stream.json"]
    Console(soft_wrap=True).print(
        f"seed {seed}: {kills} kills, {len(taken_over):,} records taken over, {len(lost)} lost; "
        f"{found.total():,} on the stream, {found.total() - len(found):,} of them again; "
        f"{recovered:,} recovered at the end; files left: {left}",
        highlight=False,
        markup=False,
    )
    sys.exit(bool(lost or left))


if __name__ == "__main__":
    main()
