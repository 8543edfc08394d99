"""``dead-letters`` lists, shows, redrives and dismisses what was given up."""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from tests.support.consumer.letters import LETTER, letter
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


def world_with(*letters: DeadLetter) -> FakeWorld:
    world = FakeWorld()
    world.sink.write(letters)
    return world


def test_the_list_tells_what_matters_and_not_the_data() -> None:
    world = world_with(LETTER)
    (row,) = world.json("dead-letters", "list")
    assert (row["message_id"], row["reason"], row["attempts"], row["size_bytes"]) == (
        "shardId-000000000000:1", "exhausted", 4, 1,
    )  # fmt: skip
    assert not any("data" in name for name in row)
    assert world.opened == ["dead letters"], "neither ZooKeeper nor Kinesis"


def test_the_list_has_one_line_for_each_letter() -> None:
    out, _ = world_with(letter(1), letter(2, error="x" * 500)).call("dead-letters", "list", *SETTINGS)
    lines = out.splitlines()
    assert len(lines) == 3
    assert "2026-01-31T12:01:40.250Z" in lines[1]
    assert "ValueError: no" in lines[1]
    assert lines[2].endswith("…")


def test_the_list_can_be_cut_and_says_so() -> None:
    world = world_with(*(letter(number) for number in range(60)))
    assert len(world.json("dead-letters", "list")) == 50
    assert len(world.json("dead-letters", "list", "--limit", "0")) == 60
    _, err = world.call("dead-letters", "list", "--limit", "3", *SETTINGS)
    assert "--limit 0" in err
    assert "--limit 0" not in world.call("dead-letters", "list", "--limit", "60", *SETTINGS)[1]


def test_the_list_can_be_of_one_reason() -> None:
    world = world_with(letter(1), letter(2, reason="rejected"))
    rows = world.json("dead-letters", "list", "--reason", "rejected", "--limit", "1")
    assert [row["sequence_number"] for row in rows] == ["2"]
    world.call("dead-letters", "list", "--reason", "other", *SETTINGS, exit_code=2)


def test_no_letters_is_no_error() -> None:
    world = FakeWorld()
    assert world.json("dead-letters", "list") == []
    assert (
        f"no dead letters in {Path.cwd()}/.kinesis-spout/billing"
        in world.call("dead-letters", "list", *SETTINGS)[1]
    )


def test_a_letter_is_shown_in_full_as_text_and_as_base64() -> None:
    world = world_with(letter(1, data=b"caf\xc3\xa9"), letter(2, data=b"\xff"))
    text = world.json("dead-letters", "show", "shardId-000000000000:1")
    assert (text["data_text"], text["data_base64"]) == ("café", "Y2Fmw6k=")
    binary = world.json("dead-letters", "show", "shardId-000000000000:2")
    assert (binary["data_text"], binary["data_base64"]) == (None, "/w==")
    out, _ = world.call("dead-letters", "show", "shardId-000000000000:1", *SETTINGS)
    assert "ValueError: no" in out


def test_a_letter_can_neither_steer_the_terminal_nor_pose_as_a_field() -> None:
    hostile = "no\x1b[2J\x9b31m\u202e\nreason  rejected"
    message_id = "shardId-000000000000:1"
    world = world_with(letter(1, error=hostile, partition_key="k\x1b]0;x\x07", data=b"d\x1b[1m"))
    listed, _ = world.call("dead-letters", "list", *SETTINGS)
    shown, _ = world.call("dead-letters", "show", message_id, *SETTINGS)
    for line in (listed + shown).split("\n"):
        assert not any(unicodedata.category(char) == "Cc" or char == "\u202e" for char in line)
    assert r"\x1b[2J\x9b31m\u202e" in shown
    assert [line for line in shown.split("\n") if line.startswith("reason")] == [
        "reason             exhausted"
    ]
    assert [line.strip() for line in shown.split("\n") if "rejected" in line] == ["reason  rejected"]
    assert world.json("dead-letters", "show", message_id)["error"] == hostile
    assert next(iter(world.sink.read())).error == hostile


def test_a_letter_that_is_not_there_is_an_error_with_the_next_step() -> None:
    _, err = world_with(LETTER).call("dead-letters", "show", "shardId-0:9", *SETTINGS, exit_code=1)
    assert "dead-letters list" in err


def test_the_named_letters_are_redriven_and_not_offered_again() -> None:
    world = world_with(letter(1, data=b"one"), letter(2, data=b"two"))
    assert world.json("dead-letters", "redrive", "shardId-000000000000:2") == {"redriven": 1, "missing": []}
    assert world.puts.put == [("orders", b"two")]
    assert [row["sequence_number"] for row in world.json("dead-letters", "list")] == ["1"]


def test_letters_that_are_not_there_are_named_after_the_others_were_redriven() -> None:
    world = world_with(LETTER)
    _, err = world.call(
        "dead-letters", "redrive", "shardId-000000000000:1", "shardId-0:9", *SETTINGS, exit_code=1
    )
    assert "records back on their stream: 1" in err
    assert "shardId-0:9" in err
    assert len(world.puts.put) == 1


def test_all_letters_are_redriven() -> None:
    world = world_with(*(letter(number) for number in range(1200)))
    assert world.json("dead-letters", "redrive", "--all", "--yes")["redriven"] == 1200
    assert world.json("dead-letters", "list") == []


def test_ids_or_all_but_not_both_and_not_neither() -> None:
    world = world_with(LETTER)
    world.call("dead-letters", "redrive", *SETTINGS, exit_code=2)
    world.call("dead-letters", "redrive", "shardId-000000000000:1", "--all", *SETTINGS, exit_code=2)
    assert world.puts.put == []


def test_all_letters_are_not_redriven_unless_somebody_confirms_it() -> None:
    world = world_with(letter(1), letter(2))
    _, err = world.call("dead-letters", "redrive", "--all", *SETTINGS, exit_code=2)
    assert "add --yes" in err
    assert world.puts.put == []


def test_a_dry_run_names_the_letters_and_puts_nothing() -> None:
    world = world_with(letter(1), letter(2, reason="rejected"), letter(2, reason="rejected"))
    plan = world.json("dead-letters", "redrive", "--all", "--dry-run")
    assert plan == {"would_redrive": ["shardId-000000000000:1", "shardId-000000000000:2"], "missing": []}
    out, err = world.call("dead-letters", "redrive", "--all", "--dry-run", *SETTINGS)
    assert out.splitlines() == plan["would_redrive"]
    assert "2 letters (1 exhausted, 1 rejected)" in err
    assert world.puts.put == []
    assert "client" not in world.opened
    assert len(world.json("dead-letters", "list")) == 3


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (("--reason", "rejected"), "2"),
        (("--shard", "shardId-000000000007"), "3"),
        (("--error", "time-out"), "4"),
    ],
)
def test_only_the_letters_that_fit_are_redriven_and_listed(options: tuple[str, ...], number: str) -> None:
    world = world_with(
        letter(1),
        letter(2, reason="rejected"),
        letter(3, shard_id="shardId-000000000007"),
        letter(4, error="a time-out"),
    )
    assert [row["sequence_number"] for row in world.json("dead-letters", "list", *options)] == [number]
    assert world.json("dead-letters", "redrive", "--all", "--yes", *options)["redriven"] == 1
    left = {row["sequence_number"] for row in world.json("dead-letters", "list")}
    assert left == {"1", "2", "3", "4"} - {number}


def test_a_filter_goes_with_all_only() -> None:
    _, err = world_with(LETTER).call(
        "dead-letters", "redrive", "shardId-0:1", "--reason", "rejected", *SETTINGS, exit_code=2
    )
    assert "--all" in err


def test_letters_that_come_after_the_question_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with(letter(1), letter(2))
    questions: list[str] = []

    def answer(action: str, *, yes: bool) -> None:
        assert not yes
        questions.append(action)
        world.sink.write([letter(3)])

    monkeypatch.setattr("kinesis_spout.cli.commands.dead_letters.confirm", answer)
    assert world.json("dead-letters", "redrive", "--all")["redriven"] == 2
    assert questions == ["put 2 letters (2 exhausted) back on their stream"]
    assert [row["sequence_number"] for row in world.json("dead-letters", "list")] == ["3"]


WHY = ("--why", "test data")


def test_named_letters_are_dismissed_and_listed_no_more() -> None:
    world = world_with(letter(1), letter(2), letter(3))
    world.consumer()
    answer = world.json("dead-letters", "dismiss", "shardId-000000000000:2", *WHY)
    assert answer == {"dismissed": 1, "missing": []}
    _, err = world.call("dead-letters", "dismiss", "shardId-000000000000:3", *WHY, *SETTINGS)
    assert "letters dismissed: 1" in err
    assert [row["sequence_number"] for row in world.json("dead-letters", "list")] == ["1"]
    assert world.puts.put == []
    first, _ = world.json("audit")
    assert (first["what"], first["of"], first["why"]) == (
        "dismiss", "1 of 1 letter: shardId-000000000000:2", "test data",
    )  # fmt: skip
    assert "@" in first["who"]


def test_a_letter_that_was_dismissed_cannot_be_shown_redriven_or_dismissed_again() -> None:
    world = world_with(LETTER)
    message_id = "shardId-000000000000:1"
    world.json("dead-letters", "dismiss", message_id, *WHY)
    for command in (("show",), ("redrive",), ("dismiss", *WHY)):
        _, err = world.call("dead-letters", *command, message_id, *SETTINGS, exit_code=1)
        assert message_id in err
        assert "or dismissed" in err
    assert world.puts.put == []


def test_a_dismissed_letter_is_listed_shown_and_redriven_as_such() -> None:
    world = world_with(letter(1), letter(2, data=b"two"), letter(3))
    world.consumer()
    first, second = "shardId-000000000000:1", "shardId-000000000000:2"
    world.json("dead-letters", "dismiss", first, second, *WHY)
    rows = world.json("dead-letters", "list", "--dismissed")
    assert [row["message_id"] for row in rows] == [first, second]
    assert world.json("dead-letters", "show", second, "--dismissed")["data_text"] == "two"
    _, err = world.call("dead-letters", "show", first, *SETTINGS, exit_code=1)
    assert "`kinesis-spout dead-letters list --dismissed`" in err
    assert world.json("dead-letters", "redrive", second, "--dismissed") == {"redriven": 1, "missing": []}
    assert world.puts.put == [("orders", b"two")]
    assert world.json("audit")[-1]["of"] == f"1 of 1 letter: {second} (dismissed)"
    plan = world.json("dead-letters", "redrive", "--all", "--dismissed", "--dry-run")
    assert plan["would_redrive"] == [first]
    assert [row["sequence_number"] for row in world.json("dead-letters", "list")] == ["3"]
    world.json("dead-letters", "redrive", "--all", "--dismissed", "--yes")
    _, err = world.call("dead-letters", "list", "--dismissed", *SETTINGS)
    assert err.startswith("no dismissed letters in ")
    _, err = world.call("dead-letters", "list", "--dismissed", "--reason", "expired", *SETTINGS)
    assert err.startswith("no dead letters with reason 'expired' (dismissed) in ")


def test_all_letters_of_a_filter_are_dismissed_once_somebody_confirms_it() -> None:
    world = world_with(letter(1), letter(2, reason="rejected"))
    command = ("dead-letters", "dismiss", "--all", "--reason", "rejected", *WHY)
    _, err = world.call(*command, *SETTINGS, exit_code=2)
    assert "to dismiss 1 letter (1 rejected), so that nobody receives their records, add --yes" in err
    assert world.json(*command, "--dry-run") == {"would_dismiss": ["shardId-000000000000:2"], "missing": []}
    assert len(world.json("dead-letters", "list")) == 2
    assert world.json(*command, "--yes")["dismissed"] == 1
    assert [row["sequence_number"] for row in world.json("dead-letters", "list")] == ["1"]


@pytest.mark.parametrize("why", [(), ("--why", ""), ("--why", " ")])
def test_no_letter_is_dismissed_without_a_reason(why: tuple[str, ...]) -> None:
    world = world_with(LETTER)
    _, err = world.call("dead-letters", "dismiss", "--all", *why, *SETTINGS, exit_code=2)
    assert "--why" in err
    assert len(world.json("dead-letters", "list")) == 1


def test_where_a_letter_was_raised_is_in_the_json_and_is_shown() -> None:
    raised = 'Traceback (most recent call last):\n  File "billing.py", line 3, in bill\nKeyError'
    world = world_with(letter(1, traceback=raised), letter(2))
    first, second = world.json("dead-letters", "list")
    assert (first["traceback"], second["traceback"]) == (raised, None)
    out, _ = world.call("dead-letters", "show", first["message_id"], *SETTINGS)
    assert "in bill" in out


# -- a misspelt application

COMMANDS = [
    ("list",),
    ("list", "--dismissed"),
    ("show", "shardId-1:1"),
    ("redrive", "--all"),
    ("redrive", "shardId-1:1"),
    ("dismiss", "--all", *WHY),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_application_that_has_not_begun_is_refused_with_those_that_have(command: tuple[str, ...]) -> None:
    world = FakeWorld()
    world.others = [("billings", "orders"), ("shipping", "orders")]
    out, err = world.call("dead-letters", *command, *SETTINGS, exit_code=4)
    assert out == ""
    assert "billings on orders, shipping on orders" in err
    assert "did you mean billings on orders?" in err


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_where_no_consumer_has_run_is_refused_in_every_form(
    command: tuple[str, ...], form: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnDisk(FakeWorld):
        dead_letters = World.dead_letters
        progress = World.progress

    monkeypatch.chdir(tmp_path)
    out, err = OnDisk().call("dead-letters", *command, *form, *SETTINGS, exit_code=4)
    assert out == ""
    assert f"'{tmp_path}/.kinesis-spout/zookeeper', found no such directory" in err


@pytest.mark.parametrize("command", [("list",), ("redrive", "--all")])
def test_an_application_that_has_begun_may_have_no_letters(command: tuple[str, ...]) -> None:
    world = FakeWorld()
    world.others = [("shipping", "orders")]
    world.consumer().close()
    world.call("dead-letters", *command, *SETTINGS)


def test_where_letters_are_kept_in_a_place_of_their_own_the_application_decides_nothing() -> None:
    world = FakeWorld()
    world.others = [("shipping", "orders")]
    world.call("dead-letters", "list", "--dead-letters", "/var/dead", *SETTINGS)
    assert world.opened == ["dead letters"]


def test_letters_that_are_there_are_listed_without_zookeeper() -> None:
    world = world_with(LETTER)
    world.others = [("shipping", "orders")]
    assert world.json("dead-letters", "list", "--reason", "rejected") == []
    assert world.opened == ["dead letters"]


def test_a_zookeeper_that_is_away_leaves_no_letters_an_answer() -> None:
    class Alone(FakeWorld):
        is_reached = False

        @contextmanager
        def progress(self, config: SpoutConfig, *, begin: bool = False) -> Iterator[StoredProgress]:
            with super().progress(config, begin=begin) as progress:
                if not self.is_reached:
                    raise StoreUnavailable("nobody answers")
                yield progress

    _, err = Alone().call("dead-letters", "list", *SETTINGS)
    assert f"no dead letters in {Path.cwd()}/.kinesis-spout/billing" in err
    assert "could not find out whether billing has begun on orders: nobody answers" in err
