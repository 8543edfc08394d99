"""``put`` makes records of its arguments, or of the lines that it is given."""

import json
from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.unit.cli.fake_world import FakeWorld

STREAM = ("--stream", "orders")


def test_each_argument_is_a_record() -> None:
    world = FakeWorld()
    _, err = world.call("put", "one", "zwei ü", *STREAM)
    assert world.puts.put == [("orders", b"one"), ("orders", "zwei ü".encode())]
    assert err == "records put: 2 (0 2)\n"
    assert world.opened == ["client"], "no application, no ZooKeeper"


def test_without_arguments_each_line_is_a_record_whatever_its_bytes() -> None:
    world = FakeWorld()
    world.call("put", *STREAM, given=b"one\ntwo\r\n\n\xff\xfe")
    assert [data for _, data in world.puts.put] == [b"one", b"two", b"", b"\xff\xfe"]


def test_nothing_given_is_nothing_put() -> None:
    world = FakeWorld()
    assert world.call("put", *STREAM, given=b"")[1] == "records put: 0\n"
    assert world.puts.put == []


def test_a_key_is_for_all_and_without_one_each_record_has_its_own() -> None:
    world = FakeWorld()
    world.call("put", "a", "b", "--key", "customer-7", *STREAM)
    assert world.puts.keys == ["customer-7", "customer-7"]
    world = FakeWorld()
    world.call("put", "a", "b", *STREAM)
    assert len(set(world.puts.keys)) == 2


def test_a_record_is_put_as_often_as_asked() -> None:
    world = FakeWorld()
    out, _ = world.call("put", "a", "b", "--count", "600", "--json", *STREAM)
    assert json.loads(out) == {"put": 1200, "shards": {"0": 1200}}
    assert len(world.puts.put) == 1200
    world.call("put", "a", "--count", "0", *STREAM, exit_code=2)


def test_the_stream_must_be_given() -> None:
    _, err = FakeWorld().call("put", "a", exit_code=2)
    assert "give it as --stream" in err


def test_an_interruption_says_how_many_records_are_on_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[tuple[str, bytes]]:
        yield "k", b"1"
        yield "k", b"2"
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("kinesis_spout.cli.commands.put"), "_records", interrupted)
    world = FakeWorld()
    _, err = world.call("put", *STREAM, exit_code=130)
    assert "records put before the interruption: 2" in err
    assert [data for _, data in world.puts.put] == [b"1", b"2"]
