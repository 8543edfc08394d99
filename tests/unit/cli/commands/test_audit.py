"""Every change that an operator makes is told by ``audit``."""

import getpass
import logging
from typing import Any

import pytest

from kinesis_spout.operations import audit
from kinesis_spout.operations.group import pause
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import StoreFault
from shard_state import GroupMember
from tests.support.consumer.letters import letter
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


@pytest.fixture
def world() -> FakeWorld:
    world = FakeWorld()
    world.consumer()
    return world


def told(world: FakeWorld) -> list[tuple[str, str]]:
    return [(entry["what"], entry["of"]) for entry in world.json("audit")]


def test_at_first_nothing_was_changed(world: FakeWorld) -> None:
    assert world.call("audit", *SETTINGS) == ("", "no operator has changed anything yet\n")


def test_every_change_is_told_in_order_with_who_made_it(world: FakeWorld) -> None:
    consumer = world.zookeeper.process("other")
    consumer.coordinator.join(GroupMember(name="other").encode())
    shard = world.shard_ids[0]
    world.sink.write([letter(1), letter(2)])
    world.call("pause", "--shard", shard, *SETTINGS)
    world.call("pause", *SETTINGS)
    world.call("resume", *SETTINGS)
    world.call("members", "drain", "other", *SETTINGS)
    world.call("members", "undrain", "other", *SETTINGS)
    world.call("dead-letters", "redrive", "--all", "--yes", "--rate", "1000", *SETTINGS)
    for member in ("consumer", "other"):
        world.zookeeper.expire(member)
    world.call("checkpoints", "reset", "--to", "latest", "--yes", *SETTINGS)
    assert told(world) == [
        ("pause", shard),
        ("pause", "the whole application"),
        ("resume", "the whole application"),
        ("drain", "other"),
        ("undrain", "other"),
        ("redrive", "2 of 2 letters: all"),
        ("reset", "2 shards to latest"),
    ]
    entry: dict[str, Any] = world.json("audit")[0]
    assert entry["who"].startswith(f"{getpass.getuser()}@")
    assert entry["door"] == "command line"


def test_what_an_operator_says_forges_no_line(world: FakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kinesis_spout")
    by = audit.Operator(who="ann\r", why="a test\n2026-01-01 ERROR nothing works\x1b[2J\u2028")
    pause(world, SpoutConfig.of(stream="orders", app="billing"), by=by)
    (entry,) = world.json("audit")
    assert (entry["who"], entry["why"]) == ("ann ", "a test 2026-01-01 ERROR nothing works [2J ")
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_what_was_refused_or_changed_nothing_is_not_told(world: FakeWorld) -> None:
    world.call("checkpoints", "reset", "--to", "latest", "--yes", *SETTINGS, exit_code=5)
    world.call("resume", *SETTINGS)
    world.call("dead-letters", "redrive", "--all", "--yes", *SETTINGS)
    assert told(world) == []


def test_an_entry_that_cannot_be_stored_leaves_the_change_and_says_so(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> bool:
        world.zookeeper.fail_next(StoreFault.UNAVAILABLE)
        world.zookeeper.next_fault()
        raise AssertionError

    monkeypatch.setattr(
        "kinesis_spout.testing.zookeeper.in_memory_zookeeper.InMemoryGroup.write_audit", refuse
    )
    _, error = world.call("pause", *SETTINGS)
    assert "the audit entry of this change could not be stored" in error
    assert world.zookeeper.paused == {None}


def test_a_change_of_an_application_that_has_not_begun_says_that_the_audit_lacks_it() -> None:
    world = FakeWorld()
    world.sink.write([letter(1)])
    _, error = world.call("dead-letters", "dismiss", letter(1).message_id, "--why", "old", *SETTINGS)
    assert "could not be stored: billing on orders has not begun" in error
    assert list(world.sink.read()) == []


STORED = (
    b'{"version":1,"at":1700000000.0,"who":"ann","door":"web page","what":"pause","of":"shard-1","why":""}'
)


def test_entries_of_today_stay_readable(world: FakeWorld) -> None:
    world.zookeeper.audit.append(STORED)
    assert world.json("audit") == [
        {
            "at": "2023-11-14T22:13:20.000Z",
            "who": "ann",
            "door": "web page",
            "what": "pause",
            "of": "shard-1",
            "why": "",
        }
    ]


@pytest.mark.parametrize("stored", [b"nonsense", b"", b"\xff", STORED.replace(b'n":1', b'n":2')])
def test_a_stored_entry_that_cannot_be_read_does_not_hide_the_others(world: FakeWorld, stored: bytes) -> None:
    world.zookeeper.audit.append(stored)
    world.call("pause", *SETTINGS)
    assert [what for what, _ in told(world)] == ["unreadable entry", "pause"]


def test_a_user_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1001")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert audit.Operator.here().who.startswith("unknown@")
