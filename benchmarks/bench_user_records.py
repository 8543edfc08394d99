"""A page of aggregated records made into the user records inside, in CPU seconds.

From the bytes of a reply to records that a handler can be given: decoding, the MD5 of each aggregated record, its
protobuf message, and a record for each user record in it; where a reshard has made the shard, also the MD5 of each
key. Another page has the same user records as records of their own. What taking apart costs a page with nothing to
take apart is told by making the same page without looking. Trace context in the tags of one user record in a
hundred, as a producer that traces leaves it, is passed over or, with the setting `tracing`, read.
"""

import base64
import json
import random
from collections.abc import Iterator
from functools import partial

from canned_kinesis import page_body
from figures import Figure, cpu_seconds

from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.kinesis.read.page import decode_reply, page_of
from kinesis_spout.kinesis.read.user_records import HashKeys, with_user_records
from kinesis_spout.model.record import TraceContext
from kinesis_spout.ports import Page
from shard_state import Capacity, Checkpoint, LocalShardState, Order, Position, RetryPolicy, Shard

CARRIERS, INSIDE, SIZE_BYTES = 200, 100, 100
PLAIN = 10_000
GOAL_MICROSECONDS = 1.0
_TRACE = TraceContext(f"00-{1:032x}-{1:016x}-01")
_PARENTED = Shard(shard_id="shard-1", parents=("shard-0",), hash_range=(0, 2**127))


def figures(*, quick: bool) -> Iterator[Figure]:
    repeats = 5 if quick else 15
    count = CARRIERS * INSIDE
    body, plain = _aggregated_body(), page_body(PLAIN, SIZE_BYTES)
    assert len(_page(body, look=True).records) == count

    alone = cpu_seconds(lambda: _page(plain, look=False), repeats=repeats) / PLAIN
    looked = cpu_seconds(lambda: _page(plain, look=True), repeats=repeats) / PLAIN
    yield _figure(f"plain page, {PLAIN:,} records, not looked at", alone)
    yield _figure(f"plain page, {PLAIN:,} records, looked at", looked, alone, "not looked at")
    name = f"{CARRIERS} aggregated records with {INSIDE} user records of {SIZE_BYTES} B"
    apart = cpu_seconds(lambda: _page(body, look=True), repeats=repeats) / count
    yield _figure(name, apart, looked, "as many plain records", goal=GOAL_MICROSECONDS)
    hash_keys = HashKeys.to_check(_PARENTED)
    checked = cpu_seconds(lambda: _page(body, look=True, hash_keys=hash_keys), repeats=repeats) / count
    yield _figure(f"{name}, each key's MD5 compared with the shard", checked, looked, "as many plain records")
    traced = _aggregated_body(traced=True)
    for tracing in (False, True):
        took = (
            cpu_seconds(lambda on=tracing: _page(traced, look=True, with_traces=on), repeats=repeats) / count
        )
        yield _figure(
            f"{name}, one in {INSIDE} traced, tracing {'on' if tracing else 'off'}", took, apart, "none"
        )
    pages = {each: _page(each, look=True) for each in (body, plain)}
    handed_out = [cpu_seconds(partial(_hand_out, page), repeats=repeats) for page in pages.values()]
    yield _figure(
        "user records: emit and ack, one by one", handed_out[0] / count, handed_out[1] / PLAIN, "plain ones"
    )


def _figure(
    what: str, value: float, reference: float | None = None, named: str = "", goal: float | None = None
) -> Figure:
    ratio = None if reference is None else reference / value
    return Figure(
        what=what, value=value * 1e6, unit="µs CPU/record", reference=named, ratio=ratio, at_most=goal
    )


def _page(body: bytes, *, look: bool, hash_keys: HashKeys | None = None, with_traces: bool = False) -> Page:
    page = page_of(decode_reply(body, stream="orders", shard_id="shard-1"))
    if not look:
        return page
    return with_user_records(page, start=None, hash_keys=hash_keys, with_traces=with_traces)


def _hand_out(page: Page) -> None:
    shard = LocalShardState(
        Shard(shard_id="shard-1"),
        Checkpoint(start=Position.trim_horizon(), epoch=1),
        random=lambda: 0.5,
        retry=RetryPolicy(limit=3),
        order=Order.UNORDERED,
        capacity=Capacity(records=100_000),
    )
    for record in page.records:
        sequence = record.sequence
        shard.emit(sequence, record.partition_key, 0.0)
        shard.ack(sequence, 0.0)


def _aggregated_body(*, traced: bool = False) -> bytes:
    """Take the page of as many plain records, and give each of them user records to carry."""
    source = random.Random(CARRIERS)
    reply = json.loads(page_body(CARRIERS, SIZE_BYTES))
    for at, carrier in enumerate(reply["Records"]):
        inside = (
            UserRecord(
                f"customer-{at * INSIDE + number:06}",
                source.randbytes(SIZE_BYTES),
                trace=_TRACE if traced and not number else None,
            )
            for number in range(INSIDE)
        )
        carrier["Data"] = base64.b64encode(aggregate(inside)).decode()
    return json.dumps(reply).encode()
