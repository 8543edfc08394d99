from collections.abc import Iterable

from examples.demo.consumers.settings import ConsumerStatus
from examples.demo.ledger import Delivery
from examples.demo.milestones import Join, Kill, Milestones

ALONE, SECOND, AGAIN = 1, 2, 3


def delivery(at: float, run: int, shard_id: str) -> Delivery:
    return Delivery(at=at, run=run, shard_id=shard_id, handled=True, flight_id=7, attempt=1)


def status(joined_at: float | None, owned: Iterable[str] = ()) -> ConsumerStatus:
    return ConsumerStatus(joined_at=joined_at, spark_seconds=5.0, owned=tuple(owned))


def shared() -> Milestones:
    """Gives the books of two consumers that have two shards each, since second 12."""
    milestones = Milestones()
    milestones.started(SECOND, pid=20)
    before = {ALONE: status(1, "ab"), SECOND: status(10, "cd")}
    list(milestones.look(12, [delivery(11, SECOND, "c")], before, 4))
    return milestones


def killed() -> Milestones:
    milestones = shared()
    milestones.killed(ALONE, 10, 20.0, shards="ab", unfinished=17)
    milestones.started(AGAIN, pid=30)
    return milestones


def test_a_join_is_timed_to_its_first_record_and_to_half_of_the_shards() -> None:
    milestones = Milestones()
    milestones.started(SECOND, pid=20)
    look = milestones.look
    assert not list(look(9.5, [delivery(9, ALONE, "a")], {ALONE: status(1, "abcd"), SECOND: status(None)}, 4))
    assert not list(look(10.5, [], {ALONE: status(1, "abcd"), SECOND: status(10)}, 4))
    assert not list(
        look(11, [delivery(10.75, SECOND, "c")], {ALONE: status(1, "abd"), SECOND: status(10, "c")}, 4)
    )
    assert not milestones.is_shared()
    (said,) = look(11.5, [], {ALONE: status(1, "ab"), SECOND: status(10, "cd")}, 4)
    assert said == "the second consumer shares: first record 0.8 s after it joined, 2 of 4 shards after 1.5 s"
    assert milestones.is_shared()
    assert milestones.joins == {
        SECOND: Join(pid=20, first_record_seconds=0.75, share_seconds=1.5, owned=2, open_shards=4)
    }


def test_a_join_is_timed_once() -> None:
    milestones = shared()
    before = dict(milestones.joins)
    statuses = {ALONE: status(1, "ab"), SECOND: status(10, "cd")}
    assert not list(milestones.look(15, [delivery(14, SECOND, "c")], statuses, 4))
    assert milestones.joins == before


def test_a_take_over_is_the_first_record_after_the_kill_of_a_shard_that_the_dead_one_owned() -> None:
    milestones = killed()
    others = [delivery(19.9, SECOND, "a"), delivery(20.1, ALONE, "a"), delivery(20.5, SECOND, "c")]
    statuses = {SECOND: status(10, "cd"), AGAIN: status(None)}
    assert not list(milestones.look(21, others, statuses, 4))
    assert milestones.kills[-1].taken_over_seconds is None
    (said,) = milestones.look(24, [delivery(23.5, SECOND, "b"), delivery(23.7, SECOND, "a")], statuses, 4)
    assert said == "the other one went on with the dead one's shards 3.5 s after the kill"
    assert milestones.kills == [Kill(run=ALONE, pid=10, unfinished=17, taken_over_seconds=3.5)]


def test_what_the_consumer_started_again_reads_is_no_take_over() -> None:
    milestones = killed()
    statuses = {SECOND: status(10, "cd"), AGAIN: status(27, "a")}
    list(milestones.look(29, [delivery(28, AGAIN, "a")], statuses, 4))
    assert milestones.kills[-1].taken_over_seconds is None


def test_the_consumer_started_again_is_timed_from_the_kill_and_from_its_joining() -> None:
    milestones = killed()
    assert not milestones.is_shared()
    said = list(
        milestones.look(
            29, [delivery(28.5, AGAIN, "a")], {SECOND: status(10, "cd"), AGAIN: status(27, "ab")}, 4
        )
    )
    assert said == [
        "resumed 8.5 s after the kill",
        "the one on Spark shares: first record 1.5 s after it joined, 2 of 4 shards after 2.0 s",
    ]
    (kill,) = milestones.kills
    assert (kill.resumed_seconds, kill.spark_seconds) == (8.5, 5.0)
    assert kill.again == Join(pid=30, first_record_seconds=1.5, share_seconds=2.0, owned=2, open_shards=4)
    assert milestones.is_shared()


def test_a_consumer_that_is_killed_again_is_to_join_no_more() -> None:
    milestones = killed()
    milestones.killed(AGAIN, 30, 40.0, shards="ab", unfinished=0)
    assert set(milestones.joins) == {SECOND}
    assert [kill.run for kill in milestones.kills] == [ALONE, AGAIN]
