"""The plain door: what a record costs with a loop that acks each, beside boto3's loop, which promises nothing.

All read the same backlog of 8 shards from one endpoint on loopback, in the way of ``backlog_reading``, each in a
process of its own. Kinesis' read limits are lifted for the spout; boto3's loop has none.

python benchmarks/run.py plain[:1024,100,order=key,...]
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from backlog_reading import REFERENCE, ClientProcess, Cost, Load, cost_of, let_processes_import_benchmarks
from canned_kinesis import CannedKinesis
from figures import Figure, Step

from kinesis_spout.zookeeper import EmbeddedZooKeeper

SHARDS: Final = 8
SIZES: Final = (1024, 100)
GOAL_MICROS: Final = 6.0
GOAL_OF_ORDER_MICROS: Final = 10.0
GOAL_RATIO: Final = 2.0

CLIENTS: Final = {
    "spout": "each record acked at once",
    "spout, order=key": 'order="key"',
    "spout, order=shard": 'order="shard"',
    "spout, 20,000 in flight": "20,000 in flight",
    "spout, 5 % fail": "5 % fail once",
    "spout, 800 holes": "one in 100 acked late, 800 holes",
}
"""Of ``source_clients``, and what they do."""


def figures(*, quick: bool, only: Sequence[str] = ()) -> Iterator[Figure | Step]:
    sizes = [size for size in SIZES if str(size) in only] or SIZES
    clients = [name for name in CLIENTS if name.removeprefix("spout, ") in only] or list(CLIENTS)
    let_processes_import_benchmarks()
    with tempfile.TemporaryDirectory() as directory, CannedKinesis() as kinesis:
        yield Step("starting ZooKeeper")
        with EmbeddedZooKeeper(Path(directory) / "zookeeper") as zookeeper:
            environment = {"BENCHMARK_ZOOKEEPER": zookeeper.connect_string}
            for size_bytes in sizes:
                load = Load(
                    shards=SHARDS,
                    size_bytes=size_bytes,
                    records=80_000 if quick else 400_000,
                    warm_up_records=80_000,
                )

                def cost(client: str, load: Load = load) -> Cost:
                    with ClientProcess(Path(sys.executable), kinesis, client, load, environment) as process:
                        return cost_of(process, kinesis, client, load)

                yield Step(f"{size_bytes:,} B")
                reference = cost(REFERENCE)
                yield _figure(REFERENCE, size_bytes, reference, reference)
                for client in clients:
                    yield _figure(client, size_bytes, cost(client), reference)


def _figure(client: str, size_bytes: int, cost: Cost, reference: Cost) -> Figure:
    is_ours, is_acked_at_once = client in CLIENTS, client == "spout"
    goal = GOAL_MICROS if is_acked_at_once else GOAL_OF_ORDER_MICROS
    what = f"the plain door, {CLIENTS[client]}" if is_ours else f"{client}'s loop"
    return Figure(
        what=f"{what}, {size_bytes:,} B",
        value=cost.cpu_micros,
        unit="us CPU/record",
        reference=REFERENCE if is_ours else "",
        ratio=reference.cpu_micros / cost.cpu_micros if is_ours else None,
        at_most=goal if is_ours else None,
        note=f"{cost.records_per_second:,.0f} records/s"
        + (f"; goal also >= {GOAL_RATIO:g} times cheaper" if is_acked_at_once else ""),
    )
