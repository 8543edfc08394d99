"""Storm's verbs on several streams, in memory and by a clock that the test holds."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig, SpoutClosed, StreamNotFound
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.testing import InMemoryStream, InMemoryStreams, ManualClock, SteppedSpout
from tests.support import threads
from tests.support.waiting import wait_until

FIND_SECONDS = 30.0


class World:
    """Streams, and the spouts on them; those left open are closed in the end."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.streams = InMemoryStreams(clock=self.clock)
        self.spouts: list[SteppedSpout] = []

    def spout(self, stream: str | list[str], **settings: Any) -> SteppedSpout:
        settings = {"app": "billing", "initial_position": "trim_horizon", "retry_jitter": 0.0, **settings}
        spout = SteppedSpout(ports=self.streams.process(), stream=stream, **settings)
        self.spouts.append(spout)
        return spout

    def put(self, stream: str, *payloads: bytes) -> None:
        for payload in payloads:
            self.streams.streams[stream].put(payload, "key")

    def take(self, spout: SteppedSpout, count: int) -> list[Emitted]:
        """Take so many tuples, letting time pass for at most a minute."""
        taken: list[Emitted] = []
        until = self.clock.monotonic() + 60.0
        while len(taken) < count and self.clock.monotonic() < until:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.1)
            else:
                taken.append(emitted)
        return taken

    def pass_time(self, spout: SteppedSpout, seconds: float) -> list[Emitted]:
        """Let time pass, and give what comes meanwhile."""
        taken: list[Emitted] = []
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.5)
            else:
                taken.append(emitted)
        return taken


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for spout in made.spouts:
        spout.close()


def payloads(emitted: list[Emitted]) -> list[bytes]:
    return [each.values.data for each in emitted]


class TestReading:
    def test_streams_are_served_in_turn(self, world: World) -> None:
        for name in ("orders", "refunds", "returns"):
            world.streams.create(name)
            world.put(name, *(f"{name}-{at}".encode() for at in range(50)))
        spout = world.spout(["orders", "refunds", "returns"]).open()
        taken = world.take(spout, 90)
        for name in ("orders", "refunds", "returns"):
            assert sum(each.values.stream == name for each in taken) == 30

    def test_a_record_and_its_message_id_say_the_stream(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
            world.put(name, b"one")
        spout = world.spout("orders,refunds").open()
        taken = world.take(spout, 2)
        assert {each.values.stream for each in taken} == {"orders", "refunds"}
        assert len({each.message_id for each in taken}) == 2
        assert all(
            each.message_id == f"{each.values.stream}/{each.message_id.partition('/')[2]}" for each in taken
        )
        assert {each.message_id.partition("/")[2] for each in taken} == {
            f"shardId-000000000000:{taken[0].values.sequence_number}#1.1"
        }, "within their streams the two are called the same"

    def test_acks_and_fails_find_their_stream(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
            world.put(name, name.encode())
        spout = world.spout(["orders", "refunds"], retry_backoff_seconds=1.0).open()
        by_stream = {each.values.stream: each.message_id for each in world.take(spout, 2)}
        assert spout.ack(by_stream["orders"])
        assert spout.fail(by_stream["refunds"], "not now")
        again = world.take(spout, 1)
        assert [(each.values.stream, each.values.attempt) for each in again] == [("refunds", 2)]
        assert spout.record(again[0].message_id) is not None
        assert spout.ack(again[0].message_id)
        assert (spout.counters.delivered, spout.counters.acked, spout.counters.retried) == (3, 2, 1)
        assert {shard.shard_id for shard in spout.shards()} == {
            "orders/shardId-000000000000",
            "refunds/shardId-000000000000",
        }

    def test_what_is_no_message_id_is_refused(self, world: World) -> None:
        world.streams.create("orders")
        world.streams.create("refunds")
        spout = world.spout("orders,refunds").open()
        with pytest.raises(ValueError, match="stream/shardId:sequence"):
            spout.ack("shardId-000000000000:7#1.1")
        with pytest.raises(ValueError, match="expected a message id"):
            spout.ack("parcels/nonsense")
        assert not spout.ack("parcels/shardId-000000000000:7#1.1"), "of a stream that is not read"

    def test_a_listener_is_told_by_the_ids_that_are_handed_out(self, world: World) -> None:
        told: list[tuple[str, str]] = []

        class Listener(SpoutListener):
            def emitted(self, message_id: str, attempt: int) -> None:
                told.append((f"emitted {attempt}", message_id))

            def acked(self, message_id: str) -> None:
                told.append(("acked", message_id))

            def failed(self, message_id: str, reason: FailReason, error: str, retry_in: float | None) -> None:
                told.append((f"failed {reason} {error} {retry_in}", message_id))

            def exhausted(self, message_id: str, attempts: int, error: str) -> None:
                told.append((f"exhausted {attempts} {error}", message_id))

        world.streams.create("orders")
        world.put("orders", b"good", b"bad")
        spout = world.spout(["orders", "o*"], retry_limit=0, listener=Listener()).open()
        good, bad = (each.message_id for each in world.take(spout, 2))
        spout.ack(good)
        spout.fail(bad, "no")
        assert told == [
            ("emitted 1", good),
            ("emitted 1", bad),
            ("acked", good),
            ("failed fail no None", bad),
            ("exhausted 1 no", bad),
        ]

    def test_dead_letters_name_their_stream(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
            world.put(name, name.encode())
        spout = world.spout(["orders", "refunds"], retry_limit=0).open()
        for each in world.take(spout, 2):
            spout.fail(each.message_id, "no")
        spout.close()
        letters = {name: list(sink.read()) for name, sink in world.streams.dead_letters.items()}
        assert {name: [letter.stream for letter in found] for name, found in letters.items()} == {
            "orders": ["orders"],
            "refunds": ["refunds"],
        }

    def test_deactivated_it_hands_out_nothing_of_any_stream(self, world: World) -> None:
        world.streams.create("orders")
        world.put("orders", b"one", b"two")
        spout = world.spout("orders*").open()
        assert len(world.take(spout, 1)) == 1
        spout.deactivate()
        assert world.pass_time(spout, 5.0) == []
        spout.activate()
        assert len(world.take(spout, 1)) == 1

    def test_iterating_gives_the_tuples_of_all_streams(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
            world.put(name, name.encode())
        seen: set[bytes] = set()
        for emitted in world.spout("orders,refunds").open():
            seen.add(emitted.values.data)
            if len(seen) == 2:
                break
        assert seen == {b"orders", b"refunds"}


class TestPausesByAnOperator:
    def test_one_stream_or_all_may_be_paused(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
        spout = world.spout("orders,refunds").open()
        world.pass_time(spout, 2.0)
        spout.pause_shards("refunds/shardId-000000000000")
        world.put("orders", b"one")
        world.put("refunds", b"two")
        assert payloads(world.pass_time(spout, 5.0)) == [b"one"]
        assert spout.paused_shards == {"refunds/shardId-000000000000"}
        assert spout.resume_shards()
        assert payloads(world.pass_time(spout, 5.0)) == [b"two"]

    def test_a_shard_of_no_stream_is_refused(self, world: World) -> None:
        world.streams.create("orders")
        world.streams.create("refunds")
        spout = world.spout("orders,refunds").open()
        for shard_id in ("shardId-000000000000", "parcels/shardId-000000000000"):
            with pytest.raises(InvalidConfig, match="of one of orders, refunds"):
                spout.pause_shards(shard_id)


class TestMemory:
    def test_what_all_may_keep_is_divided(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
            world.put(name, *(bytes(1024 * 1024) for _ in range(12)))
        spout = world.spout("orders,refunds", max_buffered_bytes=12 * 1024 * 1024).open()
        taken = world.pass_time(spout, 20.0)
        of_each = [sum(each.values.stream == name for each in taken) for name in ("orders", "refunds")]
        assert of_each == [5, 5], (
            "each may keep three quarters of 6 MiB, and the last record goes beyond that"
        )

    def test_the_share_grows_when_a_stream_is_gone(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
        world.put("orders", *(bytes(1024 * 1024) for _ in range(12)))
        spout = world.spout("orders,refunds", max_buffered_bytes=12 * 1024 * 1024).open()
        assert len(world.pass_time(spout, 20.0)) == 5
        world.streams.streams["refunds"].delete()
        assert len(world.pass_time(spout, 40.0)) == 4


class TestStreamsThatComeAndGo:
    def test_a_pattern_finds_streams_that_are_made_later_and_nothing_of_them_is_lost(
        self, world: World
    ) -> None:
        world.streams.create("orders-de")
        spout = world.spout("orders-*", initial_position="latest").open()
        world.pass_time(spout, 60.0)
        world.streams.create("orders-fr")
        world.streams.create("parcels")
        world.put("orders-fr", b"written before anybody noticed the stream")
        world.put("parcels", b"not of the pattern")
        world.clock.advance(1.0)
        assert payloads(world.pass_time(spout, FIND_SECONDS + 5)) == [
            b"written before anybody noticed the stream"
        ]

    def test_a_stream_made_while_nobody_ran_is_read_from_its_beginning(self, world: World) -> None:
        world.streams.create("orders-de")
        first = world.spout("orders-*", initial_position="latest").open()
        world.pass_time(first, 300.0)
        first.close()
        world.streams.create("orders-fr")
        world.put("orders-fr", b"one")
        world.put("orders-de", b"two")
        world.clock.advance(10.0)
        again = world.spout("orders-*", initial_position="latest").open()
        assert sorted(payloads(world.take(again, 2))) == [b"one", b"two"]

    def test_a_new_deployment_begins_old_streams_again_at_latest_and_loses_nothing_of_new_ones(
        self, world: World
    ) -> None:
        world.streams.create("orders-de")
        first = world.spout("orders-*", initial_position="latest").open()
        world.pass_time(first, 300.0)
        first.close()
        world.streams.create("orders-fr")
        world.put("orders-fr", b"of the new stream")
        world.put("orders-de", b"given up")
        world.clock.advance(10.0)
        deployed = world.spout("orders-*", start_again="latest", deployment="v2").open()
        assert payloads(world.pass_time(deployed, 5.0)) == [b"of the new stream"]
        deployed.close()
        world.put("orders-fr", b"while it was down")
        world.clock.advance(10.0)
        again = world.spout("orders-*", start_again="latest", deployment="v2").open()
        assert b"while it was down" in payloads(world.pass_time(again, 5.0))

    def test_streams_that_were_there_at_the_first_start_begin_at_the_initial_position(
        self, world: World
    ) -> None:
        for name in ("orders-de", "orders-fr"):
            world.streams.create(name)
            world.put(name, b"old")
        world.clock.advance(100.0)
        spout = world.spout("orders-*", initial_position="latest").open()
        assert world.pass_time(spout, 5.0) == []

    def test_a_deleted_stream_ends_only_itself_and_loudly(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
        spout = world.spout(["orders", "refunds"]).open()
        world.pass_time(spout, 5.0)
        with caplog.at_level(logging.ERROR):
            world.streams.streams["refunds"].delete()
            world.pass_time(spout, 15.0)
        assert set(spout.gone) == {"refunds"}
        assert isinstance(spout.last_error, StreamNotFound)
        told = [record.message for record in caplog.records if "refunds has ended" in record.message]
        assert len(told) == 1
        world.put("orders", b"goes on")
        assert payloads(world.take(spout, 1)) == [b"goes on"]

    def test_when_all_are_deleted_that_is_raised(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
        spout = world.spout(["orders", "refunds"]).open()
        world.pass_time(spout, 5.0)
        for name in ("orders", "refunds"):
            world.streams.streams[name].delete()
        with pytest.raises(StreamNotFound):
            world.pass_time(spout, 30.0)

    def test_what_is_counted_of_a_stream_that_is_gone_stays(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
        world.put("refunds", b"one")
        spout = world.spout(["orders", "refunds"]).open()
        (taken,) = world.take(spout, 1)
        spout.ack(taken.message_id)
        world.streams.streams["refunds"].delete()
        world.pass_time(spout, 15.0)
        assert set(spout.gone) == {"refunds"}
        assert spout.counters.acked == 1

    def test_one_stream_that_cannot_be_read_now_stops_no_other(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)
        world.streams.streams["refunds"].make_unavailable(times=1_000)
        world.put("orders", b"one")
        world.put("refunds", b"two")
        spout = world.spout(["orders", "refunds"]).open()
        assert payloads(world.pass_time(spout, 10.0)) == [b"one"]
        assert not spout.gone

    def test_an_application_of_several_goes_on_with_one_more_stream_and_with_one_less(
        self, world: World
    ) -> None:
        for name in ("orders", "refunds", "returns"):
            world.streams.create(name)
            world.put(name, name.encode())
        first = world.spout(["orders", "refunds"]).open()
        for each in world.take(first, 2):
            first.ack(each.message_id)
        first.close()
        second = world.spout(["orders", "refunds", "returns"]).open()
        (only,) = world.pass_time(second, 5.0)
        assert only.values.data == b"returns"
        second.ack(only.message_id)
        second.close()
        world.put("orders", b"more")
        third = world.spout(["orders", "returns"]).open()
        assert payloads(world.pass_time(third, 5.0)) == [b"more"]

    def test_an_application_of_one_stream_may_become_one_of_several(self, world: World) -> None:
        orders = world.streams.create("orders")
        world.streams.create("refunds")
        world.put("orders", b"one")
        ports = world.streams.process().open(world.spout("orders,refunds").config.of_stream("orders"))
        with SteppedSpout(
            ports=ports, stream="orders", app="billing", initial_position="trim_horizon"
        ).open() as one:
            emitted = one.next_tuple()
            assert emitted is not None
            one.ack(emitted.message_id)
        orders.put(b"two", "key")
        several = world.spout("orders,refunds").open()
        assert payloads(world.pass_time(several, 5.0)) == [b"two"]


class TestTheStart:
    def test_one_error_names_every_stream_that_is_not_there(self, world: World) -> None:
        world.streams.create("orders")
        world.streams.create("gone").delete()
        spout = world.spout(["orders", "refnds", "gone"])
        with pytest.raises(StreamNotFound, match=r"2 of 3 streams cannot be read: refnds: .*; gone: "):
            spout.open()
        assert world.streams.progress["orders"].begun is None, "nothing has begun on the stream that is there"
        with pytest.raises(SpoutClosed):
            spout.next_tuple()

    def test_an_order_by_key_is_refused_before_anything_has_begun_on_another_stream(
        self, world: World
    ) -> None:
        world.streams.create("orders")
        world.streams.create("refunds")
        world.streams.streams["refunds"] = InMemoryStream("refunds", clock=world.clock, ignores_keys=True)
        with pytest.raises(InvalidConfig, match=r"order: expected .* for stream 'refunds', got 'key'"):
            world.spout(["orders", "refunds"], order="key").open()
        assert world.streams.progress["orders"].begun is None

    def test_a_pattern_that_finds_nothing_is_an_error(self, world: World) -> None:
        world.streams.create("orders")
        with pytest.raises(StreamNotFound, match=r"ordres-\* finds none"):
            world.spout("ordres-*").open()

    def test_ports_of_one_stream_do_for_one_and_no_more(self, world: World) -> None:
        world.streams.create("orders")
        several = world.spout("orders,refunds").config
        ports = world.streams.process().open(several.of_stream("orders"))
        with pytest.raises(InvalidConfig, match="expected ports of several streams"):
            SteppedSpout(config=several, ports=ports)
        ports.close_all()

    def test_one_stream_named_is_read_as_if_there_were_no_others(self, world: World) -> None:
        world.streams.create("orders").put(b"one", "key")
        spout = world.spout("orders").open()
        (taken,) = world.take(spout, 1)
        assert taken.message_id.startswith("shardId-000000000000:"), "which no stream's name precedes"
        assert [shard.shard_id for shard in spout.shards()] == ["shardId-000000000000"]
        assert spout.ack(taken.message_id)

    def test_a_spout_that_was_not_activated_says_so(self, world: World) -> None:
        world.streams.create("orders")
        with pytest.raises(SpoutClosed, match="not activated"):
            world.spout("orders*").next_tuple()


class TestTheEndOfARun:
    def test_a_run_with_an_until_ends_though_a_pattern_may_find_others(self, world: World) -> None:
        for name in ("orders", "refunds-de"):
            world.streams.create(name)
            world.put(name, name.encode())
        spout = world.spout("orders,refunds-*", until="latest").open()
        for each in world.take(spout, 2):
            spout.ack(each.message_id)
        assert world.pass_time(spout, 10.0) == []
        assert spout.is_done

    def test_a_run_without_one_goes_on_while_a_pattern_may_find_others(self, world: World) -> None:
        stream = world.streams.create("refunds-de")
        stream._close("shardId-000000000000", ())
        spout = world.spout("refunds-*").open()
        world.pass_time(spout, 10.0)
        assert {status.phase.name for status in spout.shards()} == {"OVER"}
        assert not spout.is_done

    def test_named_streams_are_done_when_the_last_shard_of_each_is_over(self, world: World) -> None:
        for name in ("orders", "refunds"):
            world.streams.create(name)._close("shardId-000000000000", ())
        spout = world.spout("orders,refunds").open()
        world.pass_time(spout, 10.0)
        assert spout.is_done

    def test_a_run_with_an_until_whose_last_stream_is_deleted_is_an_error_and_not_done(
        self, world: World
    ) -> None:
        world.streams.create("refunds-de").put(b"unread", "key")
        spout = world.spout("refunds-*", until="latest").open()
        world.streams.streams["refunds-de"].delete()
        with pytest.raises(StreamNotFound, match="refunds-de"):
            world.pass_time(spout, 60.0)
        assert not spout.is_done


def test_the_streams_of_a_spout_are_read_ahead_on_the_same_few_threads() -> None:
    def polling() -> set[threading.Thread]:
        return {each for each in threads.named() if each.name == "kinesis-io"}

    before, streams, came = polling(), InMemoryStreams(), set[str]()
    for number in range(20):
        streams.create(f"orders-{number}").put(b"one", "key")
    spout = RecordSpout(
        ports=streams.process(),
        stream="orders-*",
        app="billing",
        initial_position="trim_horizon",
        stream_list_interval_seconds=0.1,
    )

    def take() -> int:
        emitted = spout.next_tuple()
        if emitted is not None:
            came.add(f"{emitted.values.stream} {emitted.values.data.decode()}")
            spout.ack(emitted.message_id)
        return len(came)

    with spout.open():
        wait_until(lambda: take() == 20, "a record of each stream")
        assert len(polling() - before) <= 8
        streams.streams["orders-0"].delete()
        wait_until(lambda: take() == 20 and "orders-0" in spout.gone, "the deleted stream to end")
        streams.streams["orders-1"].put(b"two", "key")
        wait_until(lambda: take() == 21, "the others to be read on")
    wait_until(lambda: polling() <= before, "its threads end")
