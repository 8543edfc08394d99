"""The commands as a whole: help, version, errors as text, exit codes, and a quick start."""

import json
import subprocess
import sys

import pytest

from kinesis_spout.cli.failures import report
from kinesis_spout.model.errors import ConsumerAlive, Unavailable
from kinesis_spout.settings.documentation import options
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


def test_without_arguments_the_help_names_every_command() -> None:
    _, err = FakeWorld().call(exit_code=2)
    for command in (
        "run",
        "shards",
        "checkpoints",
        "dead-letters",
        "put",
        "tail",
        "options",
        "Exit codes",
    ):
        assert command in err


def test_the_version_is_printed() -> None:
    assert FakeWorld().call("--version")[0].startswith("kinesis-spout ")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from kinesis_spout.cli.app import app\n"
        "try:\n"
        "    app(['--help'])\n"
        "except SystemExit:\n"
        "    print([name for name in ('pyspark', 'boto3', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_error_is_one_line_with_the_next_step_and_the_exit_code() -> None:
    out, err = FakeWorld().call("shards", "--app", "billing", exit_code=2)
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("error: stream is required")
    assert lines[1].startswith("next: ")
    assert len(lines) == 2


def test_debug_shows_the_traceback() -> None:
    _, err = FakeWorld().call("--debug", "shards", exit_code=2)
    assert "Traceback" in err
    assert "error: " in err


def test_an_unknown_option_is_a_usage_error() -> None:
    FakeWorld().call("shards", "--no-such-option", exit_code=2)


def test_an_interrupt_ends_with_130() -> None:
    class Interrupted(FakeWorld):
        def time(self) -> float:
            raise KeyboardInterrupt

    _, err = Interrupted().call("checkpoints", "reset", "--to", "latest", *SETTINGS, exit_code=130)
    assert err == "interrupted\n"


def test_every_setting_is_an_option_in_every_format() -> None:
    names = [option.name for option in options()]
    world = FakeWorld()
    assert [row["name"] for row in json.loads(world.call("options", "--json")[0])] == names
    assert [line.split()[0] for line in world.call("options")[0].splitlines()[1:]] == names


def test_programs_get_the_defaults_as_values_and_the_rules_as_schema() -> None:
    rows = {row["name"]: row for row in json.loads(FakeWorld().call("options", "--json")[0])}
    assert (rows["stream"]["required"], rows["stream"]["default"]) == (True, None)
    assert (rows["region"]["required"], rows["region"]["default"]) == (False, None)
    assert rows["max_buffered_bytes"]["default"] == 256 * 1024 * 1024
    assert rows["fail_on_data_loss"]["default"] is True
    assert rows["retry_limit"]["schema"] == {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}
    assert rows["session_timeout_seconds"]["schema"] == {"type": "number", "minimum": 1, "maximum": 120}
    assert rows["order"]["schema"] == {"enum": ["key", "shard", "unordered"]}


@pytest.mark.parametrize(("given", "missing"), [("app", "stream"), ("stream", "app")])
def test_a_missing_setting_is_answered_with_the_option_that_gives_it(given: str, missing: str) -> None:
    _, err = FakeWorld().call("shards", f"--{given}", "billing", exit_code=2)
    assert f"give it as --{missing}, as KINESIS_SPOUT_{missing.upper()} in the environment" in err
    assert "keyword argument" not in err


def test_who_is_to_be_stopped_is_followed_by_how(capsys: pytest.CaptureFixture[str]) -> None:
    report(ConsumerAlive("found a, b"))
    assert capsys.readouterr().err.startswith("error: found a, b\nnext: stop them")


def test_an_endpoint_that_does_not_answer_is_followed_by_what_chooses_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(Unavailable("no answer"))
    assert "next: see that the endpoint runs" in capsys.readouterr().err
