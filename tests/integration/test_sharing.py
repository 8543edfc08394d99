"""Several consumers of one application share a stream's shards: in memory, and over the real ZooKeeper."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStream,
)
from shard_state import Position
from tests.support.consumer.world import opened
from tests.support.waiting import wait_until
from tests.support.zookeeper.places import Place, RealPlace

if TYPE_CHECKING:
    from kinesis_spout.plain.stream_tuples import Emitted

pytestmark = pytest.mark.no_second_run

Start = Callable[..., "Member"]


class Member:
    """One consumer, its process in ZooKeeper, and what it was given."""

    def __init__(self, spout: RecordSpout, process: Any) -> None:
        self.spout = spout
        self.process = process
        self.taken: list[Emitted] = []

    @property
    def name(self) -> str:
        return str(self.process.coordinator.member)

    @property
    def owned(self) -> frozenset[str]:
        return opened(self.spout)[0].manager.owned

    def take(self, *, ack: bool = True) -> int:
        """Take what there is now; say how much was ever taken."""
        while (emitted := self.spout.next_tuple()) is not None:
            self.taken.append(emitted)
            if ack:
                self.spout.ack(emitted.message_id)
        return len(self.taken)


@pytest.fixture
def stream() -> InMemoryStream:
    return InMemoryStream("orders", shards=4)


@pytest.fixture
def start(place: Place, stream: InMemoryStream) -> Iterator[Start]:
    members: list[Member] = []

    def started(name: str, session: float | None = None, **settings: Any) -> Member:
        process = place.process(name, **({} if session is None else {"session_timeout_seconds": session}))
        ports = Ports(
            lister=InMemoryShardLister(stream),
            open_getter=lambda shard_id, position: _getter(stream, shard_id, position),
            store=process.store,
            coordinator=process.coordinator,
            group=process.group,
            dead_letters=InMemoryDeadLetterSink(),
        )
        chosen: dict[str, Any] = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "commit_interval_seconds": 0.05,
            "poll_interval_seconds": 0.2,
            **settings,
        }
        members.append(Member(RecordSpout(ports=ports, **chosen).open(), process))
        return members[-1]

    yield started
    for member in members:
        member.spout.close()


def _getter(stream: InMemoryStream, shard_id: str, position: Position) -> InMemoryShardGetter:
    return InMemoryShardGetter(stream, shard_id, position)


def put(stream: InMemoryStream, count: int) -> set[str]:
    return {stream.put(f"{number}".encode(), f"key-{number}").message_id for number in range(count)}


def taken(*members: Member) -> Counter[str]:
    return Counter(emitted.message_id.partition("#")[0] for member in members for emitted in member.taken)


def share(*members: Member) -> list[int]:
    return [len(member.owned) for member in members]


def shares_are(expected: list[int], *members: Member) -> None:
    """Wait for these shares. For a moment one that has lost its session believes to own what another has."""

    def are() -> bool:
        owned = [member.owned for member in members]
        return [len(shards) for shards in owned] == expected and sum(expected) == len(
            frozenset().union(*owned)
        )

    wait_until(are, f"the shares are {expected}")


def test_one_member_has_everything_at_once(start: Start) -> None:
    assert share(start("one")) == [4]


def test_those_who_join_get_their_share_and_those_who_leave_give_it_back(
    start: Start, stream: InMemoryStream
) -> None:
    one = start("one")
    two = start("two")
    shares_are([2, 2], one, two)
    three = start("three")
    wait_until(lambda: sorted(share(one, two, three)) == [1, 1, 2], "three share")
    expected = put(stream, 200)
    wait_until(
        lambda: one.take() + two.take() + three.take() == 200,
        "everything was handed out",
    )
    assert taken(one, two, three) == Counter(expected)
    three.spout.close()
    shares_are([2, 2], one, two)
    one.spout.close()
    shares_are([4], two)
    assert two.spout.next_tuple() is None


def test_what_is_in_flight_may_end_before_a_shard_is_handed_over(
    start: Start, stream: InMemoryStream
) -> None:
    one = start("one", hand_over_timeout_seconds=600)
    expected = put(stream, 40)
    wait_until(lambda: one.take(ack=False) == 40, "all is in flight")
    two = start("two")
    wait_until(lambda: len(opened(one.spout)[0].sharing.leaving) == 2, "two shards are left")
    more = put(stream, 40)
    one.take(ack=False)
    assert share(one, two) == [4, 0]
    for emitted in one.taken:
        assert one.spout.ack(emitted.message_id)
    shares_are([2, 2], one, two)
    wait_until(lambda: one.take() + two.take() == 80, "everything was handed out")
    assert taken(one, two) == Counter(expected | more), "each record once"


def test_what_is_not_finished_in_time_comes_again_at_the_next_owner_alone(
    start: Start, stream: InMemoryStream
) -> None:
    one = start("one", hand_over_timeout_seconds=0.2)
    expected = put(stream, 40)
    wait_until(lambda: one.take(ack=False) == 40, "all is in flight")
    two = start("two")
    shares_are([2, 2], one, two)
    moved = {emitted.message_id for emitted in one.taken if emitted.message_id.partition(":")[0] in two.owned}
    acked = {emitted.message_id for emitted in one.taken if one.spout.ack(emitted.message_id)}
    assert moved
    assert moved.isdisjoint(acked), "they are acked at their new owner alone"
    wait_until(lambda: two.take() >= len(moved), "they come again")
    assert taken(two) == Counter(message_id.partition("#")[0] for message_id in moved)
    assert {message_id.partition("#")[0] for message_id in moved | acked} == expected


def test_a_drained_member_gives_everything_up_and_may_have_its_share_again(start: Start) -> None:
    one, two = start("one"), start("two")
    shares_are([2, 2], one, two)
    two.process.group.drain("one")
    shares_are([0, 4], one, two)
    two.process.group.end_drain("one")
    shares_are([2, 2], one, two)


def test_of_those_who_stand_by_one_works_and_only_while_nobody_shares(start: Start) -> None:
    first, second = start("first", mode="standby"), start("second", mode="standby")
    shares_are([4, 0], first, second)
    sharing = start("sharing")
    shares_are([0, 0, 4], first, second, sharing)
    sharing.spout.close()
    wait_until(lambda: sorted(share(first, second)) == [0, 4], "one of them works again")


def test_a_larger_weight_is_a_larger_share(start: Start) -> None:
    small, large = start("small"), start("large", weight=3)
    shares_are([1, 3], small, large)


def test_the_children_of_a_split_begin_when_their_parent_is_finished_whoever_has_them(
    start: Start, stream: InMemoryStream
) -> None:
    one, two = start("one"), start("two")
    shares_are([2, 2], one, two)
    before = put(stream, 40)
    stream.split(min(one.owned))
    after = {stream.put(b"after", f"key-{number}").message_id for number in range(40)}
    wait_until(lambda: one.take() + two.take() == 80, "everything was handed out")
    assert taken(one, two) == Counter(before | after)
    wait_until(lambda: sorted(share(one, two)) == [2, 3], "five shards are shared")


def test_the_shards_of_a_member_whose_session_is_lost_go_to_the_others(
    start: Start, place: Place, stream: InMemoryStream
) -> None:
    one, two = start("one"), start("two")
    shares_are([2, 2], one, two)
    put(stream, 40)
    wait_until(lambda: one.take(ack=False) + two.take() == 40, "all is out")
    in_flight = list(one.taken)
    place.expire(one.process)
    wait_until(
        lambda: one.take() + two.take() == 40 + len(in_flight),
        "what was in flight comes again",
    )
    twice = {message_id for message_id, count in taken(one, two).items() if count == 2}
    assert twice == {emitted.message_id.partition("#")[0] for emitted in in_flight}
    shares_are([2, 2], one, two)
    assert not any(one.spout.ack(emitted.message_id) for emitted in in_flight), "all is finished"


@pytest.mark.zookeeper
@pytest.mark.parametrize("place", ["zookeeper"], indirect=True)
def test_a_member_that_is_cut_off_hands_out_nothing_once_its_session_must_have_ended(
    real_place: RealPlace, start: Start, stream: InMemoryStream
) -> None:
    """By its own clock: it hears nothing of what others do. What it still acks then is acked nowhere else."""
    one, two = start("one", session=3.0), start("two")
    shares_are([2, 2], one, two)
    lost = one.owned
    real_place.proxy(one.process).close_door()
    wait_until(lambda: not one.owned, "it has given up what it owned")
    expected = put(stream, 40)
    assert one.spout.next_tuple() is None
    wait_until(lambda: two.take() == 40, "the other has it all")
    assert taken(two) == Counter(expected)
    assert lost < two.owned
    real_place.proxy(one.process).open_door()
    shares_are([2, 2], one, two)
