"""What can be done to a world, one fault at a time: each begins, lasts, and ends.

A fault's end says whether it really happened, so that only those are counted. What is done, to whom and for how
long is drawn from the seed before the world is looked at: the same seed draws the same faults.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.fault.suite.consumers.consumer import SinkFault
from tests.fault.suite.consumers.supervised import SupervisedConsumer, set_sink_fault
from tests.fault.suite.judgement.evidence import CLOSED, KILLED, KILLED_LEADER, STOPPED, STOPPED_LEADER
from tests.fault.suite.world import World
from tests.support.kinesis.unkind.behaviours import EVENT, Behaviour
from tests.support.kinesis.unkind.weather import FAULTS, Kind

End = Callable[[], bool]
"""Ends a fault, and says whether it happened."""

_MOST_SHARDS: Final = 8
_HOUR_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFault:
    """Done to one consumer."""

    kind: str
    weight: float
    sessions: tuple[float, float]
    """How long it lasts, in session time-outs."""
    begin: Callable[[SupervisedConsumer, Random], End | None]
    """None: it cannot be done now."""
    of_the_leader: bool = False
    on_spark: bool = False
    """Whether only one on Spark has what it is done to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFault:
    """Done to what the consumers share."""

    kind: str
    weight: float
    seconds: tuple[float, float]
    begin: Callable[[World, Random], End | None]
    """None: it cannot be done now."""


def _kill(consumer: SupervisedConsumer, _: Random) -> End:
    consumer.kill()
    return _happened


def _stop(consumer: SupervisedConsumer, _: Random) -> End:
    consumer.suspend()

    def wake() -> bool:
        consumer.wake()
        return True

    return wake


def _close(consumer: SupervisedConsumer, _: Random) -> End:
    consumer.stop_cleanly()
    return _happened


def _cut_off(consumer: SupervisedConsumer, _: Random) -> End:
    consumer.zookeeper.close_door()

    def open_door() -> bool:
        consumer.zookeeper.open_door()
        return True

    return open_door


def _vanish(consumer: SupervisedConsumer, _: Random) -> End:
    before = consumer.zookeeper.connections
    consumer.zookeeper.vanish()
    return lambda: consumer.zookeeper.connections > before


def _lose_request(consumer: SupervisedConsumer, _: Random) -> End:
    before = consumer.zookeeper.requests_lost
    consumer.zookeeper.lose_next_request()

    def end() -> bool:
        consumer.zookeeper.lose_no_more()
        return consumer.zookeeper.requests_lost > before

    return end


def _lose_answer(consumer: SupervisedConsumer, _: Random) -> End:
    before = consumer.zookeeper.answers_lost
    consumer.zookeeper.lose_next_answer()

    def end() -> bool:
        consumer.zookeeper.lose_no_more()
        return consumer.zookeeper.answers_lost > before

    return end


def _hold_commit(consumer: SupervisedConsumer, _: Random) -> End:
    before = consumer.commits_held
    consumer.hold_next_commit()

    def end() -> bool:
        consumer.hold_no_more()
        return consumer.commits_held > before

    return end


def _shift_clock(consumer: SupervisedConsumer, random: Random) -> End:
    consumer.set_clock(random.choice((-_HOUR_SECONDS, _HOUR_SECONDS)))

    def jump() -> bool:
        consumer.set_clock(random.choice((0.0, -_HOUR_SECONDS, _HOUR_SECONDS)))
        return True

    return jump


CONSUMER_FAULTS: Final = (
    ConsumerFault(kind=KILLED, weight=4, sessions=(0, 0.3), begin=_kill),
    ConsumerFault(kind=KILLED_LEADER, weight=2, sessions=(0, 0.3), begin=_kill, of_the_leader=True),
    ConsumerFault(kind=STOPPED, weight=2, sessions=(1.2, 2.2), begin=_stop),
    ConsumerFault(kind=STOPPED_LEADER, weight=1, sessions=(1.2, 2.2), begin=_stop, of_the_leader=True),
    ConsumerFault(kind=CLOSED, weight=2, sessions=(0.3, 0.6), begin=_close),
    ConsumerFault(kind="cut off from ZooKeeper", weight=4, sessions=(0.2, 2), begin=_cut_off),
    ConsumerFault(kind="host of ZooKeeper vanished", weight=2, sessions=(1.2, 2), begin=_vanish),
    ConsumerFault(
        kind="host of ZooKeeper vanished under the leader",
        weight=1,
        sessions=(1.2, 2),
        begin=_vanish,
        of_the_leader=True,
    ),
    ConsumerFault(kind="commit lost on its way", weight=6, sessions=(0.3, 0.6), begin=_lose_request),
    ConsumerFault(kind="answer to a commit lost", weight=6, sessions=(0.3, 0.6), begin=_lose_answer),
    ConsumerFault(kind="commit held until others own", weight=6, sessions=(1.5, 2.5), begin=_hold_commit),
    ConsumerFault(kind="clock an hour off", weight=2, sessions=(0.2, 0.6), begin=_shift_clock),
)


_JVM: Final = "org.apache.spark.deploy.SparkSubmit"
_WORKERS: Final = "pyspark.daemon"


def _kill_jvm(consumer: SupervisedConsumer, _: Random) -> End | None:
    consumer.expect_end()  # the query ends with an error, as it must
    return _happened if consumer.signal_parts(_JVM, signal.SIGKILL) else None


def _stop_jvm(consumer: SupervisedConsumer, _: Random) -> End | None:
    if not consumer.signal_parts(_JVM, signal.SIGSTOP):
        return None

    def wake() -> bool:
        consumer.signal_parts(_JVM, signal.SIGCONT)
        return True

    return wake


def _kill_workers(consumer: SupervisedConsumer, _: Random) -> End | None:
    return _happened if consumer.signal_parts(_WORKERS, signal.SIGKILL) else None


SPARK_FAULTS: Final = (
    ConsumerFault(kind="SIGKILL of Spark's JVM", weight=1, sessions=(0, 0.3), begin=_kill_jvm, on_spark=True),
    ConsumerFault(
        kind="SIGSTOP of Spark's JVM", weight=1, sessions=(1.2, 2.2), begin=_stop_jvm, on_spark=True
    ),
    ConsumerFault(
        kind="SIGKILL of Python workers", weight=3, sessions=(0, 0.3), begin=_kill_workers, on_spark=True
    ),
)


def _kill_zookeeper(world: World, _: Random) -> End | None:
    return _happened if world.zookeeper_signal(signal.SIGKILL) else None


def _pause_zookeeper(world: World, _: Random) -> End | None:
    if not world.zookeeper_signal(signal.SIGSTOP):
        return None
    return lambda: world.zookeeper_signal(signal.SIGCONT)


ENDS: Final = tuple(fault for fault in CONSUMER_FAULTS if fault.kind in {KILLED, KILLED_LEADER, CLOSED})


def _fill_disk(world: World, _: Random) -> End | None:
    before, disk = world.zookeeper_pids(), world.disk
    if disk is None or not before:
        return None
    disk.fill()

    def clear() -> bool:
        ended = world.zookeeper_pids() != before  # it ends where it cannot write
        disk.clear()
        return ended

    return clear


DISK_FULL: Final = "ZooKeeper's disk full"
ZOOKEEPER_FAULTS: Final = (
    WorldFault(kind="ZooKeeper killed", weight=2, seconds=(2, 3), begin=_kill_zookeeper),
    WorldFault(kind=DISK_FULL, weight=1, seconds=(3, 5), begin=_fill_disk),
    WorldFault(kind="ZooKeeper paused", weight=2, seconds=(0.5, 5), begin=_pause_zookeeper),
)


def _unkind(name: str, kinds: Sequence[Kind]) -> WorldFault:
    """Have the endpoint behave so for a while, and count whether it did."""

    def begin(world: World, random: Random) -> End:
        seed, behaviours = str(random.random()), {kind.behaviour for kind in kinds}
        before = world.kinesis.happened
        for number, kind in enumerate(kinds):
            kind.switch_on(world.kinesis, kind.rate, f"{seed}/{number}")

        def end() -> bool:
            for behaviour in behaviours:
                world.kinesis.switch_off(behaviour)
            after = world.kinesis.happened
            return any(after[each] > before[each] for each in behaviours)

        return end

    return WorldFault(kind=f"Kinesis: {name}", weight=1, seconds=(0.8, 2.5), begin=begin)


KINESIS_FAULTS: Final = tuple(_unkind(name, kinds) for name, kinds in FAULTS.items())


def _split(world: World, random: Random) -> End | None:
    drawn, shards = random.random(), world.open_shards()
    if len(shards) >= _MOST_SHARDS:
        return None
    shard = shards[int(drawn * len(shards))]
    first, last = shard.hash_range
    middle = str((first + last + 1) // 2)
    world.client.split_shard(StreamName=world.stream, ShardToSplit=shard.shard_id, NewStartingHashKey=middle)
    return _happened


def _merge(world: World, random: Random) -> End | None:
    drawn, shards = random.random(), world.open_shards()
    if len(shards) <= len(world.consumers):  # or one of them has nothing to do, and nothing to lose
        return None
    at = int(drawn * (len(shards) - 1))
    lower, upper = shards[at : at + 2]
    world.client.merge_shards(
        StreamName=world.stream, ShardToMerge=lower.shard_id, AdjacentShardToMerge=upper.shard_id
    )
    return _happened


STREAM_FAULTS: Final = (
    WorldFault(kind="split", weight=1, seconds=(0.2, 0.5), begin=_split),
    WorldFault(kind="merge", weight=1, seconds=(0.2, 0.5), begin=_merge),
)


def _take_over(world: World, random: Random) -> End | None:
    shards = world.open_shards()
    shard = shards[int(random.random() * len(shards))]
    return _happened if world.kinesis.take_over(shard.shard_id) else None


def _push(behaviour: Behaviour) -> Callable[[World, Random], End | None]:
    def begin(world: World, _: Random) -> End:
        before = world.kinesis.happened[behaviour]
        world.kinesis.switch_on(behaviour, operations=[EVENT], times=1)

        def end() -> bool:
            world.kinesis.switch_off(behaviour)
            return world.kinesis.happened[behaviour] > before

        return end

    return begin


FAN_OUT_FAULTS: Final = (
    WorldFault(kind="subscription taken over", weight=3, seconds=(0.2, 0.5), begin=_take_over),
    WorldFault(kind="subscription cut in a frame", weight=3, seconds=(1, 1.5), begin=_push(Behaviour.CUT)),
    WorldFault(kind="subscription ended", weight=2, seconds=(1, 1.5), begin=_push(Behaviour.ENDED)),
    WorldFault(kind="damaged frame", weight=1, seconds=(1, 1.5), begin=_push(Behaviour.CORRUPT)),
)


def _sink(fault: str) -> Callable[[World, Random], End]:
    def begin(world: World, _: Random) -> End:
        set_sink_fault(world.sink_fault, fault)

        def mend() -> bool:
            set_sink_fault(world.sink_fault, None)
            return True

        return mend

    return begin


SINK_FAULTS: Final = tuple(
    WorldFault(kind=f"dead-letter sink {fault}", weight=1, seconds=(1, 4), begin=_sink(fault))
    for fault in (SinkFault.FAILS, SinkFault.HANGS, SinkFault.LOSES_ANSWERS)
)


def _happened() -> bool:
    return True


Fault = ConsumerFault | WorldFault


def drawn(faults: Sequence[Fault], random: Random) -> Fault:
    return random.choices(faults, [fault.weight for fault in faults])[0]
