"""``run`` finds its handler, and shows its progress where it can be seen."""

import json
import logging
import re
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from kinesis_spout.cli.commands.run import find_handler
from kinesis_spout.cli.runs.progress_views import Goal, open_view
from kinesis_spout.cli.runs.snapshot import QuerySnapshots
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import InvalidConfig, StreamNotFound, Unavailable
from kinesis_spout.model.handler import failure_of
from kinesis_spout.model.logs import FailureKinds
from kinesis_spout.settings import SpoutConfig
from shard_state import SequenceNumber, ShardPhase, ShardStatus, Trouble
from tests.support.terminals import a_terminal
from tests.unit.cli.commands.conftest import FakeSpark
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


class QueryInProgress:
    """What a ``QuerySnapshots`` looks at."""

    def __init__(self, lag: str | None = None) -> None:
        self.counters = Counters()
        self.last_error: Unavailable | None = None
        self.trouble: Trouble | None = None
        self.paused_by_operator: str | None = None
        self.is_done = False
        self.assigned = {"this-one": 1, "another": 3}
        self.lastProgress = (  # as SpoutQuery spells it
            None if lag is None else {"sources": [{"metrics": {"maxMsBehindLatest": lag}}]}
        )

    def shards(self) -> list[ShardStatus]:
        return [
            ShardStatus(
                shard_id="shardId-000000000000",
                phase=ShardPhase.READING,
                epoch=3,
                checkpoint=SequenceNumber(5),
            )
        ]


def reading(query: QueryInProgress) -> QuerySnapshots:
    return QuerySnapshots(query)  # type: ignore[arg-type]


@pytest.fixture
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_handler_is_found_in_the_working_directory(in_directory: Path) -> None:
    (in_directory / "a_handler_module.py").write_text(
        "class Pipeline:\n    @staticmethod\n    def handle(x): ...\n"
    )
    assert find_handler("a_handler_module:Pipeline.handle").__name__ == "handle"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_colon", "MODULE:HANDLER"),
        ("no_such_module_anywhere:handle", "ModuleNotFoundError"),
        ("json:no_such_function", "'no_such_function'"),
        ("json:__name__", "str"),
        ("a_broken_module:handle", "ZeroDivisionError"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(in_directory: Path, name: str, message: str) -> None:
    (in_directory / "a_broken_module.py").write_text("1 / 0\n")
    with pytest.raises(InvalidConfig, match=message):
        find_handler(name)


@pytest.mark.parametrize(
    "arguments",
    [("--arrow", "--dataframe"), ("--arrow", "--scheme", "json"), ("--dataframe", "--scheme", "text")],
)
def test_options_that_contradict_each_other_are_refused_before_spark_starts(
    arguments: tuple[str, ...],
) -> None:
    FakeWorld().call("run", "json:loads", *arguments, *SETTINGS, exit_code=2)


def test_a_file_to_send_must_exist() -> None:
    _, err = FakeWorld().call("run", "json:loads", "--py-files", "no-such.zip", *SETTINGS, exit_code=2)
    assert "no-such.zip" in err


def test_a_stream_that_does_not_exist_is_refused_before_spark_starts() -> None:
    world = FakeWorld()
    world.problem = StreamNotFound("no stream 'orders'")
    _, err = world.call("run", "json:loads", *SETTINGS, exit_code=3)
    assert err.startswith("error: no stream 'orders'")


@pytest.mark.usefixtures("interrupted_spark")
def test_an_endpoint_that_is_away_for_now_does_not_keep_a_run_from_starting(
    capfd: pytest.CaptureFixture[str],
) -> None:
    world = FakeWorld()
    world.problem = Unavailable("no answer")
    _, err = world.call("run", "json:loads", *SETTINGS, exit_code=130)
    assert "tried again when Spark has started: no answer" in err
    assert "stopping" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("source", "door"),
    [
        ("def handle(): ...", ()),
        ("def handle(record, collector): ...", ()),
        ("def handle(batch): ...", ("--arrow",)),
        ("def handle(rows, *, collector): ...", ("--dataframe",)),
    ],
)
def test_a_handler_with_other_parameters_is_refused_before_spark_starts(
    in_directory: Path, source: str, door: tuple[str, ...]
) -> None:
    (in_directory / "wrong_handlers.py").write_text(source)
    sys.modules.pop("wrong_handlers", None)
    _, err = FakeWorld().call("run", "wrong_handlers:handle", *door, *SETTINGS, exit_code=2)
    assert "expected a handler that can be called with (" in err
    assert "got handle(" in err


def test_json_lines_are_all_that_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    query = QueryInProgress(lag="1500")
    query.counters.acked = 3
    query.last_error = Unavailable("down")
    with open_view(json=True) as view:
        print("what a handler says")  # noqa: T201
        view.show(reading(query).take("running"))
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    document: dict[str, Any] = json.loads(line)
    assert (document["state"], document["acked"], document["lag_millis"]) == ("running", 3, 1500)
    assert document["last_error"] == "down"
    assert "what a handler says" in printed.err


def test_a_log_gets_a_line_when_something_changes(capsys: pytest.CaptureFixture[str]) -> None:
    query = QueryInProgress()
    look = reading(query)
    with open_view(json=False) as view:
        for state in ("running", "running", "stopped"):
            view.show(look.take(state))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [line.partition(":")[0] for line in printed.err.splitlines() if ":" in line] == [
        "running",
        "stopped",
    ]
    assert "lag ?" in printed.err


def test_the_rate_is_of_the_time_since_the_last_look() -> None:
    query = QueryInProgress()
    look = reading(query)
    query.counters.delivered = 10
    assert look.take("running").records_per_second > 0
    assert look.take("running").records_per_second == 0


def test_a_scheme_that_is_none_is_refused_before_spark_starts() -> None:
    _, err = FakeWorld().call("run", "json:loads", "--scheme", "xml", *SETTINGS, exit_code=2)
    assert "--scheme: expected one of raw" in err
    assert "next: the command with --help" in err


def test_what_a_handler_raised_is_shown_with_its_message_to_who_runs_it_and_logged_without(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def handle(amount: int) -> None:
        raise ValueError(f"expected a positive amount, got {amount}")

    try:
        handle(2 - 7)
    except ValueError as error:
        failure = failure_of(error)
    with open_view(json=False):
        FailureKinds().add(failure.raised, error_text=failure.error_text)
    lines = capsys.readouterr().err.splitlines()
    assert "a handler failed with ValueError at " in lines[0]
    assert lines[-1] == "ValueError: expected a positive amount, got -5"
    assert 'raise ValueError(f"expected a positive amount, got {amount}")' in lines[-2]
    assert "-5" not in caplog.text


def test_a_warning_that_repeats_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("kinesis_spout.test_run")
    with open_view(json=False):
        for warning in ("no answer", "no answer", "something else", "no answer"):
            log.warning(warning)
    assert [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "WARNING kinesis_spout.test_run: no answer",
        "WARNING kinesis_spout.test_run: something else",
        "WARNING kinesis_spout.test_run: no answer",
    ]


@pytest.mark.parametrize("json", [True, False])
def test_a_log_line_has_time_and_level_and_comes_from_the_level_on_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], *, json: bool
) -> None:
    ours, others = logging.getLogger("kinesis_spout.test_run"), logging.getLogger("botocore.test_run")
    with open_view(json=json, log_level="info"):
        ours.debug("too little")
        ours.info("started: \x1b[2J with `retry_limit=3`")
        others.info("not ours")
        others.warning("a warning of others")
    printed = capsys.readouterr()
    ours.info("after the end")
    assert printed.out == ""
    info, warning = printed.err.splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    said = r"started: \\x1b\[2J with `--retry-limit 3`"
    assert re.fullmatch(rf"{time} INFO kinesis_spout\.test_run: {said}", info), info
    assert re.fullmatch(rf"{time} WARNING botocore\.test_run: a warning of others", warning), warning
    assert logging.getLogger("kinesis_spout").level == logging.NOTSET
    assert capsys.readouterr().err == ""


def test_without_progress_only_changes_of_the_state_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kinesis_spout.cli.runs.progress_views._PLAIN_SECONDS", 0.0)
    with open_view(progress=False) as view:
        for state in ("running", "running", "stopping", "stopped"):
            view.show(reading(QueryInProgress()).take(state))
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["running", "stopping", "stopped"]


def test_a_terminal_gets_the_same_lines_as_a_log_once_spark_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = a_terminal(monkeypatch, "stderr")
    with open_view() as view:
        view.show(reading(QueryInProgress()).take("running"))
    started, line = terminal.getvalue().splitlines()
    assert started == "starting Spark"
    assert line.startswith("running: delivered 0")
    assert "\x1b" not in line


def test_a_line_of_progress_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, "stderr")
    with open_view(goal=Goal("latest", None)) as view:
        view.show(reading(QueryInProgress()).take("running"))
    _, *lines = terminal.getvalue().splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80


def test_a_run_that_has_an_end_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    goal = Goal("latest", None)
    query = QueryInProgress()
    with open_view(goal=goal) as view:
        view.show(reading(query).take("running"))
        view.show(replace(reading(query).take("stopped"), is_done=True))
    bars = [line[line.index("[") :] for line in capsys.readouterr().err.splitlines()]
    assert bars == [
        "[....................]   0 % until latest",
        "[####################] 100 % until latest",
    ]


@pytest.mark.usefixtures("interrupted_spark")
@pytest.mark.parametrize(("level", "is_shown"), [("debug", True), ("info", False)])
def test_the_level_of_the_log_is_an_option_of_run(
    capfd: pytest.CaptureFixture[str], level: str, *, is_shown: bool
) -> None:
    _, err = FakeWorld().call("run", "json:loads", "--log-level", level, *SETTINGS, exit_code=130)
    assert ("DEBUG kinesis_spout.spark: starts" in err + capfd.readouterr().err) is is_shown
    FakeWorld().call("run", "json:loads", "--log-level", "loud", *SETTINGS, exit_code=2)


def test_ctrl_c_while_spark_starts_waits_for_spark_and_begins_nothing(
    interrupted_spark: FakeSpark, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    FakeWorld().call("run", "json:loads", *SETTINGS, exit_code=130)
    assert interrupted_spark.stopped
    assert "stopping when the start is done" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


PAUSE = Trouble(failing=0.97, seconds=30.0, slowed=True)


def test_the_progress_says_that_deliveries_are_slow(capsys: pytest.CaptureFixture[str]) -> None:
    query = QueryInProgress()
    query.trouble = PAUSE
    look = reading(query)
    with open_view(json=False) as view:
        view.show(look.take("running"))
    assert capsys.readouterr().err.startswith("slowed: delivered 0")
    with open_view(json=True) as view:
        view.show(look.take("running"))
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == "slowed"
    assert document["paused"] == "deliveries slowed: the handler fails for 97% of the records, since 30 s"


class StoppableQuery(QueryInProgress):
    """A query that is at its end at once unless it pauses; or ends when it is stopped."""

    def __init__(self, *, dead_lettered: int = 0, pause: Trouble | None = None) -> None:
        super().__init__()
        self.counters.dead_lettered = dead_lettered
        self.trouble = pause
        self._ended = threading.Event()

    @property
    def isActive(self) -> bool:  # noqa: N802 - as SpoutQuery spells it
        return self.trouble is not None and not self._ended.is_set()

    def exception(self) -> None:
        """Nothing went wrong."""

    def stop(self) -> None:
        self._ended.set()


def run_it(
    monkeypatch: pytest.MonkeyPatch,
    query: StoppableQuery,
    *arguments: str,
    exit_code: int = 0,
) -> str:
    monkeypatch.setattr("kinesis_spout.cli.commands.run._start", lambda *_: query)
    _, err = FakeWorld().call(
        "run", "json:loads", "--until", "latest", *arguments, *SETTINGS, exit_code=exit_code
    )
    return err


@pytest.mark.usefixtures("started_spark")
def test_the_end_of_a_run_points_to_its_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    err = run_it(monkeypatch, StoppableQuery(dead_lettered=3))
    assert (
        "3 records were dead-lettered: `kinesis-spout dead-letters list --stream orders --app billing`" in err
    )
    assert "dead-letters list" not in run_it(monkeypatch, StoppableQuery())


@pytest.mark.usefixtures("started_spark")
def test_a_script_can_ask_for_an_exit_code_if_there_are_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    err = run_it(monkeypatch, StoppableQuery(dead_lettered=1), "--fail-on-dead-letters", exit_code=7)
    assert "error: 1 record was dead-lettered" in err
    run_it(monkeypatch, StoppableQuery(), "--fail-on-dead-letters", exit_code=0)


def test_a_jvm_that_was_stopped_by_the_same_signal_is_a_note_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, interrupted_spark: FakeSpark
) -> None:
    """``timeout`` and others send SIGTERM to the whole process group."""

    def stop() -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(interrupted_spark, "stop", stop)
    _, err = FakeWorld().call("run", "json:loads", *SETTINGS, exit_code=130)
    assert "Spark's JVM had already ended" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("started_spark")
def test_a_run_that_has_an_end_does_not_pause_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinesis_spout.cli.runs.following._LONGEST_PAUSE_SECONDS", 0.05)
    query = StoppableQuery(pause=PAUSE)
    err = run_it(monkeypatch, query, exit_code=8)
    assert "error: deliveries slowed: the handler fails for 97% of the records" in err
    assert "No record was given up meanwhile" in err
    assert not query.isActive


@pytest.mark.usefixtures("started_spark")
def test_a_run_up_to_an_end_ends_with_its_query_and_with_exit_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    query, configs = StoppableQuery(), []

    def start(_: object, config: SpoutConfig, *__: object) -> StoppableQuery:
        configs.append(config)
        return query

    monkeypatch.setattr("kinesis_spout.cli.commands.run._start", start)
    FakeWorld().call("run", "json:loads", "--until", "latest", *SETTINGS, exit_code=0)
    assert [config.until for config in configs] == ["latest"]


def test_an_end_that_is_none_is_refused_before_spark_starts() -> None:
    _, err = FakeWorld().call("run", "json:loads", "--until", "trim_horizon", *SETTINGS, exit_code=2)
    assert "--until: expected an end behind the first record, got trim_horizon" in err
