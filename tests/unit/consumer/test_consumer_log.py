"""What a spout says of its life in the log."""

import json
import logging
import re
import subprocess
import sys

import pytest

from kinesis_spout.consumer import consumer_log, dead_lettering
from kinesis_spout.model.errors import StoreUnavailable
from tests.support.consumer.world import FIRST, SECOND, World, opened


@pytest.fixture(autouse=True)
def _at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Give the lines at INFO that begin with a word, of the logger of the spout's life."""
    return [
        record.getMessage()
        for record in list(caplog.records)
        if (record.name, record.levelname) == (consumer_log.__name__, "INFO")
        and record.getMessage().startswith(text)
    ]


def test_a_start_says_who_reads_what_and_by_which_door(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.spout()
    (line,) = told(caplog, "started")
    for part in ("stream orders", "app billing", "member ", "kinesis-spout ", "by next_tuple"):
        assert part in line, part


def test_latest_is_said_as_the_time_that_it_means(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.spout(initial_position="latest").close()
    (line,) = told(caplog, "position")
    assert "latest" in line
    assert re.search(r"AT_TIMESTAMP\(\d{4}-\d\d-\d\dT[\d:.]+Z\)", line), line
    caplog.clear()
    world.clock.advance(60.0)
    world.spout(initial_position="latest")
    (later,) = told(caplog, "position")
    assert "goes on from what is stored" in later
    assert re.findall(r"AT_TIMESTAMP\S+", later) == re.findall(r"AT_TIMESTAMP\S+", line), "the first start's"


def test_shards_are_said_when_they_are_acquired_and_when_they_are_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.spout()
    assert told(caplog, "acquired") == [f"acquired 1 shard of orders: {FIRST}"]
    world.zookeeper.expire("member-1")
    world.until(lambda: len(told(caplog, "acquired")) == 2, "the shard is acquired again")
    assert f"ownership lost of 1 shard of orders: {FIRST}" in caplog.text


def test_a_split_and_the_end_of_its_parent_are_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spout = world.spout()
    world.stream.split(FIRST)
    world.until(lambda: spout.next_tuple() is None and bool(told(caplog, "finished")), "the parent is over")
    children = "shardId-000000000001, shardId-000000000002"
    world.until(lambda: len(told(caplog, "acquired")) > 1, "the children are acquired")
    assert told(caplog, "split") == [f"split of orders: {FIRST} -> {children}"]
    (line,) = told(caplog, "finished")
    assert line.startswith(f"finished 1 shard of orders: {FIRST}")


def test_a_merge_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(shards=2)
    world.spout()
    world.stream.merge(FIRST, SECOND)
    world.until(lambda: bool(told(caplog, "merge")), "the merge is said")
    assert told(caplog, "merge") == [f"merge of orders: {FIRST}, {SECOND} -> shardId-000000000002"]
    world.close()


def test_back_pressure_is_said_once_for_each_change(world: World, caplog: pytest.LogCaptureFixture) -> None:
    spout = world.spout(max_pending=4)
    world.put("1", "2", "3", "4", "5")
    taken = world.take(spout, 3)
    world.until(lambda: bool(told(caplog, "paused")), "the pause is said")
    loops = spout.counters.commits
    world.clock.advance(1.0)
    world.until(lambda: spout.next_tuple() is None, "nothing more comes")
    for each in taken:
        spout.ack(each.message_id)
    world.until(lambda: bool(told(caplog, "resumed")), "the resumption is said")
    assert spout.counters.commits > loops
    assert len(told(caplog, "paused")) == len(told(caplog, "resumed")) == 1
    assert FIRST in told(caplog, "paused")[0]
    assert FIRST in told(caplog, "resumed")[0]


def test_a_buffer_that_is_full_is_said_once_for_each_change(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spout = world.spout(max_buffered_bytes=10 * 1024 * 1024)
    for _ in range(10):
        world.put("x" * 1024 * 1024)
    taken = world.take(spout, 8)
    world.until(lambda: bool(told(caplog, "paused")), "the pause is said")
    for each in taken:
        spout.ack(each.message_id)
    world.until(lambda: bool(told(caplog, "resumed")), "the resumption is said")
    (paused,), (resumed,) = told(caplog, "paused"), told(caplog, "resumed")
    assert paused.startswith("paused reading orders (")
    assert resumed.startswith("resumed reading orders (")


def test_each_commit_is_said_at_debug_and_a_summary_once_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spout = world.spout()
    began = world.clock.monotonic()
    while world.clock.monotonic() < began + 200:
        (last,) = world.put("one")
        (one,) = world.take(spout, 1)
        spout.ack(one.message_id)
        world.until_stored(last)
        world.clock.advance(10.0)

    def debug() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.getMessage().startswith("commit of ")]

    # A thread may be between a commit and what is said of it.
    world.until(lambda: len(debug()) == spout.counters.commits, "each commit is said")
    lines = told(caplog, "committed")
    assert 2 <= len(lines) <= (world.clock.monotonic() - began) / 60
    assert re.search(r"acked \d+", lines[0])
    assert {record.levelname for record in debug()} == {"DEBUG"}


def test_a_stand_by_says_so_once_and_then_what_it_acquired(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.spout(mode="standby")
    caplog.clear()
    world.spout(mode="standby")
    said = ["stands by: no shard of orders is assigned to this member"]
    world.until(lambda: told(caplog, "stands by") == said, "it says so")
    for _ in range(20):
        world.clock.advance(1.0)
    first.close()
    world.until(lambda: bool(told(caplog, "acquired")), "the second one has the shard")
    assert told(caplog, "acquired") == [f"acquired 1 shard of orders: {FIRST}"]
    assert told(caplog, "stands by") == said, "once"


def test_a_stop_says_why_and_what_was_done(world: World, caplog: pytest.LogCaptureFixture) -> None:
    spout = world.spout()
    world.put("one", "two")
    one, two = world.take(spout, 2)
    spout.ack(one.message_id)
    spout.ack(two.message_id)
    spout.close()
    spout.close()
    assert told(caplog, "stopped") == [
        "stopped orders: it was closed; delivered 2, acked 2, retried 0, timed out 0, dead-lettered 0"
    ]


def test_a_stop_by_an_error_names_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    spout = world.spout()
    opened(spout)[0].end_with(StoreUnavailable("nobody answers"))
    spout.close()
    (line,) = told(caplog, "stopped")
    assert line.startswith("stopped orders: StoreUnavailable: nobody answers; ")


def test_a_record_that_is_given_up_is_warned_of_with_the_command_that_shows_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spout = world.spout(retry_limit=0)
    world.put(*"abcde")
    first, *others = world.take(spout, 5)
    spout.fail(first.message_id, "refused")
    world.until(lambda: len(world.dead_letters.letters) == 1, "it is dead-lettered")
    for each in others:
        spout.fail(each.message_id, "refused")
    spout.close()
    lines = [each for each in caplog.records if each.name == dead_lettering.__name__]
    assert {each.levelname for each in lines} == {"WARNING"}
    assert lines[0].getMessage() == (
        "dead-lettered 1 record, 1 since the start; `kinesis-spout dead-letters list --stream orders --app "
        "billing` shows them"
    )
    said = [int(each.getMessage().split()[1]) for each in lines]
    assert sum(said) == 5, "those of the last second are said at the close"


def test_a_spout_that_never_started_does_not_say_that_it_stopped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.new_spout().close()
    assert told(caplog, "") == []


def test_no_secret_and_no_data_of_a_record_is_in_any_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = {
        "aws_access_key_id": "AKIA-to-be-hidden",
        "aws_secret_access_key": "secret-to-be-hidden",
        "aws_session_token": "token-to-be-hidden",
    }
    spout = world.spout(**secrets, retry_limit=1)
    world.put("data-to-be-hidden", "data-to-be-hidden too", key="key-to-be-hidden")
    good, bad = world.take(spout, 2)
    spout.ack(good.message_id)
    spout.fail(bad.message_id, "refused")
    (again,) = world.take(spout, 1)
    spout.fail(again.message_id, "refused")
    world.letters(1)
    world.stream.split(FIRST)
    world.until(
        lambda: spout.next_tuple() is None and bool(told(caplog, "finished")), "the end of the parent"
    )
    world.until(lambda: len(told(caplog, "acquired")) > 1, "the children are acquired, to be lost")
    world.zookeeper.expire("member-1")
    world.until(lambda: "ownership lost" in caplog.text, "the shards are lost")
    spout.close()
    assert told(caplog, "stopped")
    assert {"DEBUG", "INFO", "WARNING"} <= {record.levelname for record in caplog.records}
    everything = "\n".join(f"{record.getMessage()} {record.args!r}" for record in caplog.records)
    assert "to-be-hidden" not in everything


def test_the_library_leaves_logging_to_the_application() -> None:
    """No logger has a handler or a level; so Python prints warnings where the application configures nothing."""
    script = """
import json, logging
import kinesis_spout.kinesis_spout, kinesis_spout.structured.stream.stream_reader
logging.getLogger("kinesis_spout.consumer.consumer").warning("a warning")
handlers = {
    name: [type(handler).__name__ for handler in logger.handlers]
    for name, logger in {"": logging.getLogger(), **logging.Logger.manager.loggerDict}.items()
    if isinstance(logger, logging.Logger) and logger.handlers and (not name or name.startswith("kinesis_spout"))
}
print(json.dumps([handlers, logging.getLogger("kinesis_spout").level]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [{}, logging.NOTSET]
    assert done.stderr == "a warning\n"
