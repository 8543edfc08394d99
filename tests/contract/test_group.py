"""The contract of the port ``Group``."""

import threading
from dataclasses import replace

import pytest

from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.ports import CheckpointWrite
from kinesis_spout.testing.zookeeper import in_memory_zookeeper as fake_group
from kinesis_spout.zookeeper.members import zookeeper_group as real_group
from shard_state import (
    Assignment,
    Checkpoint,
    GroupMember,
    MemberMode,
    OperatorPause,
    Position,
    SequenceNumber,
    form_level,
)
from tests.support.core.shards import everywhere, shards_named
from tests.support.waiting import wait_until
from tests.support.zookeeper.places import Place, Process

pytestmark = pytest.mark.no_second_run

SHARD = "shardId-000000000000"


class Heard:
    """Counts what a process was told."""

    def __init__(self) -> None:
        self.news = threading.Event()

    def __call__(self) -> None:
        self.news.set()


def joined(place: Place, name: str, heard: Heard | None = None, **said: object) -> Process:
    process: Process = place.process(name)
    process.coordinator.join(GroupMember(name=name, **said).encode())  # type: ignore[arg-type]
    process.group.take_part(heard or Heard())
    return process


def leading(place: Place, name: str) -> Process:
    process = joined(place, name)
    wait_until(process.group.leads, f"{name} leads")
    return process


def assignment(epoch: int, owner: str = "one") -> Assignment:
    return Assignment(
        epoch=epoch, members=frozenset({"one", "two"}), owners={SHARD: owner}, parents={SHARD: ()}
    )


def test_members_are_given_in_the_order_in_which_they_joined_with_what_they_say(place: Place) -> None:
    two = joined(place, "two", mode=MemberMode.STANDBY)
    joined(place, "one", weight=3.0)
    found = two.group.members()
    assert [(member.name, member.mode.value, member.weight) for member in found] == [
        ("two", "standby", 1.0),
        ("one", "sharing", 3.0),
    ]
    assert found[0].joined < found[1].joined


def test_a_member_that_has_said_nothing_is_not_one_of_the_group(place: Place) -> None:
    one = joined(place, "one")
    place.process("older").coordinator.join()
    assert [member.name for member in one.group.members()] == ["one"]


def test_what_a_member_says_anew_is_heard_and_read(place: Place) -> None:
    heard = Heard()
    one, two = joined(place, "one", heard), joined(place, "two")
    one.group.members()
    heard.news.clear()
    two.coordinator.say(GroupMember(name="two", ended=frozenset({SHARD})).encode())
    wait_until(heard.news.is_set, "it is heard")
    assert one.group.members()[1].ended == {SHARD}


def test_one_leads_and_when_it_leaves_another_does(place: Place) -> None:
    one = leading(place, "one")
    two = joined(place, "two")
    assert not two.group.leads()
    assert two.group.leader() == "one"
    one.close()
    wait_until(two.group.leads, "two leads")
    assert two.group.leader() == "two"


def test_before_the_first_assignment_there_is_none(place: Place) -> None:
    assert joined(place, "one").group.assignment() is None


def test_what_the_leader_assigns_is_heard_and_read_by_all(place: Place) -> None:
    one, heard = leading(place, "one"), Heard()
    two = joined(place, "two", heard)
    assert two.group.assignment() is None
    heard.news.clear()
    assert one.group.assign(assignment(1))
    assert one.group.assignment() == assignment(1)
    wait_until(heard.news.is_set, "it is heard")
    assert two.group.assignment() == assignment(1)


def test_nobody_but_the_leader_assigns(place: Place) -> None:
    one, two = leading(place, "one"), joined(place, "two")
    assert not two.group.assign(assignment(1))
    assert one.group.assignment() is None


def test_a_leader_whose_session_is_lost_assigns_nothing_any_more(place: Place) -> None:
    one, two = leading(place, "one"), joined(place, "two")
    place.expire(one)
    wait_until(two.group.leads, "two leads")
    assert not one.group.assign(assignment(1))
    assert two.group.assign(assignment(2, "two"))
    wait_until(lambda: one.group.assignment() == assignment(2, "two"), "one reads what two assigned")
    wait_until(lambda: len(two.group.members()) == 2, "one is a member again")


def test_a_leader_that_slept_through_the_end_of_its_term_assigns_nothing(place: Place) -> None:
    one, two = leading(place, "one"), joined(place, "two")
    belief = place.leadership(one)
    place.expire(one)
    wait_until(two.group.leads, "two leads")
    assert two.group.assign(assignment(2, "two"))
    place.put_back_leadership(one, belief)
    assert not one.group.assign(assignment(1))
    wait_until(lambda: one.group.assignment() == assignment(2, "two"), "one reads what two assigned")


def test_a_member_is_drained_until_that_is_taken_back(place: Place) -> None:
    one, operator = joined(place, "one"), place.process("operator")
    operator.group.drain("one")
    operator.group.drain("one")
    wait_until(lambda: one.group.members()[0].draining, "it is drained")
    operator.group.end_drain("one")
    operator.group.end_drain("one")
    wait_until(lambda: not one.group.members()[0].draining, "it is drained no more")


def test_a_shard_that_was_refused_is_named_when_it_is_freed(place: Place) -> None:
    heard = Heard()
    one, two = joined(place, "one"), joined(place, "two", heard)
    fresh = _begun(one)
    assert one.coordinator.acquire(SHARD, fresh) is not None
    assert two.coordinator.acquire(SHARD, fresh) is None
    assert two.coordinator.take_freed() == frozenset()
    heard.news.clear()
    one.coordinator.release([SHARD])
    wait_until(heard.news.is_set, "it is heard")
    assert two.coordinator.take_freed() == {SHARD}
    assert two.coordinator.take_freed() == frozenset()


def test_a_shard_is_taken_from_a_living_owner_which_hears_of_it_and_writes_nothing_more(place: Place) -> None:
    one, two = joined(place, "one"), joined(place, "two")
    fresh = _begun(one)
    acquired = one.coordinator.acquire(SHARD, fresh)
    assert acquired is not None
    taken = two.coordinator.acquire(SHARD, fresh, fences=True)
    assert taken == replace(acquired, epoch=2)
    write = CheckpointWrite(shard_id=SHARD, checkpoint=replace(acquired, base=SequenceNumber(7)))
    assert one.store.commit([write]).fenced == {SHARD}
    lost: set[str] = set()
    wait_until(lambda: SHARD in lost.union(one.coordinator.take_lost()), "the old owner hears of it")
    assert two.store.load()[SHARD] == taken


def _begun(process: Process) -> Checkpoint:
    start = Position.trim_horizon()
    process.store.open(1_700_000_000.0, everywhere(start), shards_named(SHARD))
    return Checkpoint(start=start, parents=())


@pytest.mark.parametrize("stored", [b"nonsense", b'{"version": 99}'])
def test_an_assignment_that_cannot_be_read_is_an_error_and_not_none(place: Place, stored: bytes) -> None:
    one = leading(place, "one")
    place.put_assignment(stored)
    with pytest.raises(CheckpointUnreadable, match="assignment"):
        one.group.assignment()


def test_what_an_operator_pauses_is_heard_and_stays_until_it_is_resumed(place: Place) -> None:
    heard = Heard()
    one, operator = joined(place, "one", heard), place.process("operator")
    assert not one.group.paused()
    heard.news.clear()
    operator.group.pause(SHARD)
    operator.group.pause(SHARD)
    wait_until(heard.news.is_set, "it is heard")
    # What is heard may also be that a leader was elected.
    wait_until(lambda: one.group.paused() == OperatorPause(shards=frozenset({SHARD})), "the shard is paused")
    operator.group.pause(None)
    wait_until(lambda: one.group.paused().everything, "everything is paused")
    assert one.group.paused().covers("shardId-000000000099")
    one.close()
    operator.close()
    later = joined(place, "later")
    assert later.group.paused() == OperatorPause(everything=True, shards=frozenset({SHARD}))


def test_one_shard_is_resumed_by_itself_or_everything_at_once(place: Place) -> None:
    one, other = joined(place, "one"), "shardId-000000000001"
    for shard_id in (None, SHARD, other):
        one.group.pause(shard_id)
    assert one.group.resume(SHARD) == OperatorPause(shards=frozenset({SHARD}))
    assert not one.group.resume(SHARD)
    wait_until(lambda: one.group.paused().shards == {other}, "one is resumed")
    assert one.group.resume(None) == OperatorPause(everything=True, shards=frozenset({other}))
    wait_until(lambda: not one.group.paused(), "all is resumed")
    assert not one.group.resume(None)


def test_what_operators_changed_is_kept_in_order_and_outlives_them(place: Place) -> None:
    one = joined(place, "one")
    _begun(one)
    operator = place.process("operator")
    assert operator.group.audit() == []
    assert all(operator.group.write_audit(entry) for entry in (b"first", b"second"))
    operator.close()
    assert one.group.write_audit(b"third")
    assert place.process("later").group.audit() == [b"first", b"second", b"third"]


def test_of_the_audit_entries_the_last_thousand_are_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (real_group, fake_group):
        monkeypatch.setattr(module, "AUDIT_ENTRIES", 3)
    one = joined(place, "one")
    _begun(one)
    for number in range(5):
        one.group.write_audit(b"%d" % number)
    assert one.group.audit() == [b"2", b"3", b"4"]


def test_an_application_without_a_place_gets_none_for_an_audit_entry(place: Place) -> None:
    operator = place.process("operator")
    assert not operator.group.write_audit(b"anything")
    assert operator.group.audit() == []


def test_the_audit_is_forgotten_with_the_application(place: Place) -> None:
    one = joined(place, "one")
    _begun(one)
    one.group.write_audit(b"first")
    one.close()
    place.process("operator").store.forget()
    again = joined(place, "again")
    _begun(again)
    assert again.group.audit() == []


def test_what_a_member_reads_reaches_the_leader_and_the_level_in_force_reaches_the_members(
    place: Place,
) -> None:
    one, two = leading(place, "one"), joined(place, "two", reads=2)
    assert [member.reads for member in one.group.members()] == [1, 2]
    assert one.group.assign(assignment(1))
    assert stored_level(two) == 1


def test_a_member_that_does_not_read_the_level_in_force_says_so_and_names_its_version(place: Place) -> None:
    one, two = leading(place, "one"), joined(place, "two")
    assert one.group.assign(replace(assignment(1), level=form_level.READS + 1))
    with pytest.raises(CheckpointUnreadable, match=r"got level 2: .*upgrade this one"):
        two.group.assignment()


def stored_level(process: Process) -> int:
    stored = process.group.assignment()
    assert stored is not None
    return stored.level


def test_work_that_a_session_holds_is_its_own_until_it_ends(place: Place) -> None:
    one, two = place.process("one"), place.process("two")
    assert one.group.hold("a", "one says") is None
    assert one.group.hold("a", "one again") is None
    assert two.group.hold("b", "two says") is None
    assert two.group.hold("a", "two says") == "one says"
    assert one.group.still_holds("a")
    assert not two.group.still_holds("a")
    one.close()
    assert two.group.hold("a", "two says") is None


def test_work_is_held_no_longer_once_the_session_has_ended(place: Place) -> None:
    one, two = place.process("one"), place.process("two")
    one.group.hold("a", "one says")
    place.expire(one)
    assert not one.group.still_holds("a")
    assert two.group.hold("a", "two says") is None
    assert one.group.hold("a", "one says") == "two says"
