"""``DeliveryRate``: grants, what comes of them, and the parts of members and streams."""

import random

import pytest

from kinesis_spout.consumer.limits.delivery_rate import DeliveryRate, Grant


def delivered(rate: DeliveryRate, now: float, *, stream: str = "orders", most: int | None = None) -> int:
    """Deliver what may be, at once."""
    grant = rate.granted(stream, now, most=most)
    rate.ended(grant, grant.deliveries)
    return grant.deliveries


def test_without_a_rate_nobody_has_to_ask() -> None:
    assert not DeliveryRate().is_limited
    assert DeliveryRate(consumer=1).is_limited
    assert DeliveryRate(application=1).is_limited


def test_what_is_granted_is_taken_until_it_has_ended_and_what_was_not_delivered_is_free_again() -> None:
    rate = DeliveryRate(consumer=10)
    grant = rate.granted("orders", 0.0)
    assert grant == Grant(10, 0.0)
    assert rate.granted("orders", 5.0).deliveries == 0, "a job that takes long delivers nobody knows when"
    assert rate.due_at("orders", 5.0) is None
    rate.ended(grant, 4)
    assert rate.granted("orders", 5.0, most=3).deliveries == 3


def test_it_says_when_to_ask_again() -> None:
    rate = DeliveryRate(consumer=4)
    assert delivered(rate, 0.0, most=2) == 2
    assert rate.due_at("orders", 0.1) == 0.1
    assert delivered(rate, 0.5) == 2
    assert rate.due_at("orders", 0.6) == pytest.approx(1.0, abs=0.01)
    assert rate.due_at("orders", 0.6, worth=1.0) == pytest.approx(1.5, abs=0.01)


def test_a_few_are_not_granted_to_who_needs_some() -> None:
    rate = DeliveryRate(consumer=100)
    assert delivered(rate, 0.0, most=90) == 90
    assert rate.granted("orders", 0.1, worth=0.25).deliveries == 0
    assert rate.granted("orders", 1.1, worth=0.25).deliveries == 100


@pytest.mark.parametrize("share", [(1, 4), (2, 4), (3, 3)])
def test_a_member_has_the_part_of_the_shards_that_are_its_own(share: tuple[int, int]) -> None:
    rate = DeliveryRate(application=100)
    assert delivered(rate, 0.0) == 0, "nothing is assigned yet"
    rate.assigned("orders", *share, 0.0)
    assert delivered(rate, 0.5) == 0, "others may use it still"
    assert rate.due_at("orders", 0.5) == 2.0
    assert delivered(rate, 2.0) == 100 * share[0] // share[1]


def test_a_part_shrinks_at_once_and_grows_when_the_others_have_noticed() -> None:
    rate = DeliveryRate(application=100)
    rate.assigned("orders", 4, 4, 0.0)
    assert delivered(rate, 3.0) == 100
    rate.assigned("orders", 1, 4, 10.0)
    assert delivered(rate, 10.0) == 25
    rate.assigned("orders", 2, 4, 20.0)
    assert delivered(rate, 21.9) == 25
    assert delivered(rate, 23.0) == 50


def test_what_a_member_did_counts_when_its_part_has_grown() -> None:
    rate = DeliveryRate(application=100)
    rate.assigned("orders", 1, 4, 0.0)
    rate.assigned("orders", 2, 4, 10.0)
    assert delivered(rate, 11.5) == 25
    assert delivered(rate, 12.1) == 25


def test_a_slow_rate_waits_for_its_window_at_the_start_for_another_may_just_have_used_it() -> None:
    rate = DeliveryRate(application=0.1)
    rate.assigned("orders", 4, 4, 0.0)
    assert rate.due_at("orders", 0.0) == pytest.approx(11.0)
    assert [delivered(rate, at) for at in (10.9, 11.1, 20.0, 21.2)] == [0, 1, 0, 1]


def test_the_parts_of_all_streams_are_taken_together() -> None:
    rate = DeliveryRate(application=100)
    rate.assigned("orders", 1, 2, 0.0)
    rate.assigned("clicks", 4, 8, 0.0)
    assert delivered(rate, 2.0) == 50
    rate.left("clicks", 3.0)
    assert delivered(rate, 10.0, stream="orders") == 50


def test_a_member_that_has_no_shards_any_more_delivers_nothing() -> None:
    rate = DeliveryRate(application=100)
    rate.assigned("orders", 2, 4, 0.0)
    rate.assigned("orders", 0, 4, 3.0)
    assert delivered(rate, 10.0) == 0
    assert rate.due_at("orders", 10.0) is None


def test_the_smaller_of_both_rates_holds() -> None:
    rate = DeliveryRate(consumer=10, application=100)
    rate.assigned("orders", 4, 4, 0.0)
    assert delivered(rate, 2.0) == 10
    rate = DeliveryRate(consumer=1_000, application=100)
    rate.assigned("orders", 4, 4, 0.0)
    assert delivered(rate, 2.0) == 100


def test_the_sum_over_all_members_never_exceeds_the_rate_while_they_come_and_go() -> None:
    seed = random.randrange(1 << 30)
    rng, now = random.Random(seed), 0.0
    members = [DeliveryRate(application=50) for _ in range(4)]
    done: list[float] = []
    for step in range(600):
        if step % 60 == 0:
            owners = [rng.randrange(4) for _ in range(8)]
        for number, member in enumerate(members):
            # Each notices a little later than the others.
            if step % 60 == number:
                member.assigned("orders", owners.count(number), 8, now)
            done.extend([now] * delivered(member, now))
        now += rng.random() * 0.1
    for first in range(len(done)):
        last = next((at for at in range(first, len(done)) if done[at] >= done[first] + 0.999), len(done))
        assert last - first <= 50 + len(members), f"seed {seed}"
    assert len(done) > 50 * now * 0.3, f"seed {seed}: most of the rate is used"


def test_streams_that_ask_in_vain_have_their_turn() -> None:
    rate, counts = DeliveryRate(consumer=1), {"busy": 0, "other": 0, "third": 0}
    now = 0.0
    for _ in range(3_000):
        for stream in counts:  # the first that asks has the better chance, without turns
            counts[stream] += delivered(rate, now, stream=stream)
        now += 0.01
    assert sum(counts.values()) >= 29
    assert min(counts.values()) >= 8, counts


def test_a_stream_that_waits_no_longer_holds_up_nobody() -> None:
    rate = DeliveryRate(consumer=1)
    assert delivered(rate, 0.0) == 1
    assert delivered(rate, 0.1, stream="gone") == 0
    assert delivered(rate, 1.01) == 0, "it is the other's turn"
    assert delivered(rate, 2.2) == 1
    assert delivered(rate, 2.3, stream="gone") == 0
    assert delivered(rate, 3.3) == 0
    rate.left("gone", 3.4)
    assert delivered(rate, 3.4) == 1


def test_whatever_jobs_do_no_span_has_more_than_its_rate_and_two_windows() -> None:
    seed = random.randrange(1 << 30)
    rng, rate, now = random.Random(seed), DeliveryRate(consumer=20), 0.0
    out: list[tuple[Grant, float]] = []
    done: list[float] = []
    for _ in range(800):
        for grant, ends in [each for each in out if each[1] <= now]:
            out.remove((grant, ends))
            count = rng.randrange(grant.deliveries + 1)
            done.extend(sorted(rng.uniform(grant.at, ends) for _ in range(count)))
            rate.ended(grant, count)
        if len(out) < 3:
            grant = rate.granted("orders", now, most=rng.randrange(1, 15))
            if grant.deliveries:
                out.append((grant, now + rng.expovariate(1.0)))
        now += rng.random() * 0.1
    done.sort()
    for first in range(0, len(done), 3):
        for last in range(first, len(done), 3):
            assert last - first + 1 <= 20 * (done[last] - done[first]) + 40, f"seed {seed}"
    assert len(done) > 50, f"seed {seed}"
