"""Which shard is polled when."""

from kinesis_spout.kinesis.read.prefetcher import PollSchedule


def test_nobody_is_polled_before_the_time() -> None:
    schedule = PollSchedule[str]()
    schedule.put("a", 2.0, 0.2)
    schedule.put("b", 1.0, 0.2)

    assert schedule.next_at() == 1.0
    assert schedule.take(0.9) is None
    assert schedule.take(1.5) == "b"
    assert schedule.take(1.5) is None
    assert schedule.next_at() == 2.0


def test_a_busy_shard_does_not_wait_for_the_idle_ones_that_are_due_with_it() -> None:
    """Invariant 15."""
    schedule = PollSchedule[str]()
    for number in range(1000):
        schedule.put(f"idle-{number}", 1.0, 0.8)
    schedule.put("busy", 1.2, 0.2)

    assert schedule.take(1.1) == "idle-0"
    assert schedule.take(1.2) == "busy"


def test_busy_shards_do_not_starve_an_idle_one() -> None:
    schedule = PollSchedule[str]()
    schedule.put("idle", 1.0, 0.8)
    taken = []
    for number in range(10):
        now = 1.0 + number * 0.2
        schedule.put("busy", now, 0.2)
        taken.append(schedule.take(now))

    assert taken.count("idle") == 1


def test_the_last_word_about_a_shard_holds() -> None:
    schedule = PollSchedule[str]()
    schedule.put("a", 1.0, 0.2)
    schedule.put("a", 5.0, 0.2)
    schedule.put("b", 5.0, 0.2)
    schedule.put("b", 1.0, 0.2)
    schedule.put("c", 0.5, 0.2)
    schedule.remove("c")

    assert schedule.next_at() == 1.0
    assert schedule.take(2.0) == "b"
    assert schedule.take(2.0) is None
    assert schedule.take(5.0) == "a"
    assert schedule.next_at() is None


def test_a_shard_that_is_due_and_was_put_off_is_due_no_more() -> None:
    schedule = PollSchedule[str]()
    for shard_id in ("a", "b"):
        schedule.put(shard_id, 1.0, 0.2)
    assert schedule.take(1.0) == "a"
    schedule.put("b", 3.0, 0.2)

    assert schedule.take(2.0) is None
    assert schedule.next_at() == 3.0
