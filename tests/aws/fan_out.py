"""Fan-out: a registered consumer, its subscriptions, and their ends."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kinesis_spout.kinesis import FanOutStream
from kinesis_spout.kinesis.calls import ResourceInUse
from kinesis_spout.kinesis.read.fan_out.consumer_registration import (
    RegisteredConsumer,
    deregister_consumer,
    list_consumers,
)
from kinesis_spout.model.errors import Throttled, Unavailable
from kinesis_spout.ports import Page, ShardGetter
from shard_state import Position
from tests.aws.check import Check, check
from tests.aws.scene import Scene, expect, wait_until

CONSUMER: Final = "checks"
_MOTO: Final = "moto answers SubscribeToShard with HTTP 500"
_NO_TAKE_OVER: Final = (
    "moto has no subscriptions, and kinesis-mock refuses the second as long as the first lasts"
)
_NO_END: Final = "moto has no subscriptions, and those of kinesis-mock never come to the end of a shard"


@contextmanager
def _subscribed(scene: Scene) -> Iterator[FanOutStream]:
    """Give a member of the application, with subscriptions of its own."""
    member = FanOutStream(scene.client, scene.stream, consumer_name=CONSUMER, lister=scene.lister)
    try:
        yield member
    finally:
        member.close()


def _only_shard(scene: Scene) -> str:
    return scene.lister.list_shards()[0].shard_id


def _tip(scene: Scene) -> Position:
    """Give the place after all that was put so far."""
    (last,) = scene.put_numbered("tip", 1)
    return Position.after(scene.read_until(scene.getter(), last)[-1].sequence)


def _consumers(scene: Scene) -> list[RegisteredConsumer]:
    return list_consumers(scene.client, scene.lister.summary().arn)


@check("a registered consumer is pushed the records that polling gives", moto=_MOTO)
def _pushed(scene: Scene) -> None:
    payloads = scene.put_numbered("pushed", 20)
    with _subscribed(scene) as member:
        pushed = scene.read_until(member.getter(_only_shard(scene), Position.trim_horizon()), *payloads)
    polled = scene.read_until(scene.getter(), *payloads)
    different = sum(one != other for one, other in zip(pushed, polled, strict=False))
    expect(
        pushed == polled,
        f"expected the {len(polled)} records of polling, got {len(pushed)}, of which {different} differ",
    )
    registered = [(each.name, each.status) for each in _consumers(scene)]
    expect(registered == [(CONSUMER, "ACTIVE")], f"expected one active consumer, got {registered}")


@check("a subscription that breaks goes on after its last event", moto=_MOTO)
def _cut(scene: Scene) -> None:
    start = _tip(scene)
    with _subscribed(scene) as member:
        getter = member.getter(_only_shard(scene), start)
        before = scene.put_numbered("cut-before", 10)
        records = scene.read_until(getter, *before)
        _break(member)
        after = scene.put_numbered("cut-after", 10)
        records += scene.read_until(getter, *after)
        expect(member.reader.cuts, "expected a connection that broke, got none")
    found = [record.data for record in records]
    expect(sorted(found) == sorted(before + after), f"expected each of 20 records once, got {len(found)}")


def _break(member: FanOutStream) -> None:
    """Have a connection end without a word, as a network does it."""
    for link in list(member.reader._links.values()):
        if link.has_brought and isinstance(link.pushed.connection, socket.socket):
            link.pushed.connection.shutdown(socket.SHUT_RDWR)


@check("a member that subscribes ends the subscription of another, who is told so", emulators=_NO_TAKE_OVER)
def _taken_over(scene: Scene) -> None:
    start, shard_id = _tip(scene), _only_shard(scene)
    with _subscribed(scene) as first, _subscribed(scene) as second:
        getter = first.getter(shard_id, start)
        scene.read_until(getter, *scene.put_numbered("first-member", 1))
        other = second.getter(shard_id, getter.position)
        scene.read_until(other, *scene.put_numbered("second-member", 1))

        def is_told() -> bool:
            try:
                getter.read(1)
            except ResourceInUse:
                return True
            return False

        wait_until(is_told, "the first member to be told that the second has its shard")


@check("a consumer that is ended is gone", moto=_MOTO)
def _ended(scene: Scene) -> None:
    with _subscribed(scene) as member:
        getter = member.getter(_only_shard(scene), Position.trim_horizon())
        scene.read_until(getter, *scene.put_numbered("not-ended-yet", 1))
    _end_consumer(scene)


def _end_consumer(scene: Scene) -> None:
    deregister_consumer(scene.client, scene.lister.summary().arn, CONSUMER)
    wait_until(lambda: _consumers(scene) == [], "the consumer to be gone")


@check("the end of a closed shard is pushed, with its children", emulators=_NO_END)
def _closed(scene: Scene) -> None:
    (root,) = [shard.shard_id for shard in scene.lister.list_shards() if not shard.parents]
    with _subscribed(scene) as member:
        last = _read_to_the_end(member.getter(root, Position.trim_horizon()))
    _end_consumer(scene)
    parents = [child.parents for child in last.child_shards]
    expect(parents == [(root,)] * 2, f"expected two children of {root}, got children of {parents}")


def _read_to_the_end(getter: ShardGetter) -> Page:
    pages: list[Page] = []

    def is_over() -> bool:
        with suppress(Throttled, Unavailable):
            pages.append(getter.read(10_000))
        return bool(pages) and pages[-1].at_end

    wait_until(is_over, "the end of a closed shard")
    return pages[-1]


CHECKS: Final[tuple[Check, ...]] = (_pushed, _cut, _taken_over, _ended)
AFTER_RESHARDING: Final[tuple[Check, ...]] = (_closed,)
