"""``kinesis-spout run``: a handler on Spark, until it is told to stop."""

import contextlib
import importlib
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kinesis_spout.cli.commands.run_progress import LogLevel, ProgressView, Reading, open_view
from kinesis_spout.cli.failures import INTERRUPTED, DeadLettered, PausedTooLong, SparkFailed, WrongArguments
from kinesis_spout.cli.output import note
from kinesis_spout.cli.settings import as_argument, configured
from kinesis_spout.cli.spark_session import existing, start_spark, stop_spark
from kinesis_spout.consumer.pause_reports import pause_text
from kinesis_spout.errors import InvalidConfig, KinesisError, KinesisSpoutError
from kinesis_spout.scheme import resolve
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.messages import respelled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesis_spout.cli.world import World
    from kinesis_spout.spark.driver.query import SpoutQuery

_LOOK_SECONDS: Final = 0.1
_REFRESH_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 120.0
"""How long a run that is to end when it has caught up stays paused, before it gives up."""
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_STANDARD_ERROR: Final = 2
_STOPPING_AT_START: Final = b"stopping when the start is done; a second Ctrl-C does not wait\n"


class _HandlerKind(Enum):
    RECORD = "foreach_record"
    ARROW = "foreach_arrow"
    DATAFRAME = "foreach_batch"


@configured("initial_position", "guarantee", "retry_limit", "order", "dead_letters")
def run(
    ctx: typer.Context,
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:HANDLER",
            help="The function to call; MODULE is looked for here first.",
            show_default=False,
        ),
    ],
    config: SpoutConfig,
    *,
    arrow: Annotated[
        bool, typer.Option("--arrow", help="HANDLER takes (pyarrow.RecordBatch, collector).")
    ] = False,
    dataframe: Annotated[
        bool, typer.Option("--dataframe", help="HANDLER takes (DataFrame, collector), on the driver.")
    ] = False,
    scheme: Annotated[
        str, typer.Option(help="What a record handler is given: raw, text, json, or MODULE:CALLABLE.")
    ] = "raw",
    master: Annotated[
        str | None,
        typer.Option(
            help='Where Spark runs: "local[2]", "spark://...". Unset: as spark-submit or spark-defaults say.',
            show_default=False,
        ),
    ] = None,
    py_files: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A .py or .zip file to send to the executors; repeatable."),
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all that is in the stream now is finished.")
    ] = False,
    fail_on_dead_letters: Annotated[
        bool,
        typer.Option("--fail-on-dead-letters", help="End with exit code 7 if records were dead-lettered."),
    ] = False,
    per_shard: Annotated[bool, typer.Option("--per-shard", help="Show each shard's progress too.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON on standard output each second.")
    ] = False,
    log_level: Annotated[
        LogLevel,
        typer.Option(
            metavar="LEVEL",
            help="The least that is logged, on standard error: debug, info (the spout's life), warning or error.",
        ),
    ] = "warning",
) -> None:
    """Call a handler for every record, on Spark, until Ctrl-C or SIGTERM.

    Returning acks the record; raising fails it, to be retried and in the end dead-lettered. A stop finishes
    what is in flight, stores the progress, and ends with 130 after Ctrl-C and with 0 after SIGTERM; a second
    Ctrl-C does not wait. Under systemd set KillMode=mixed, so that SIGTERM is for this process alone.

    When practically every record fails it pauses, gives nothing up, and goes on when one succeeds (or
    `kinesis-spout resume` says so). With --until-caught-up it ends with 8 after two minutes of that.

    Next: `kinesis-spout shards` from another terminal; `dead-letters list` for what was given up.
    """
    if arrow and dataframe:
        raise WrongArguments("expected --arrow or --dataframe, got both")
    kind = _HandlerKind.ARROW if arrow else _HandlerKind.DATAFRAME if dataframe else _HandlerKind.RECORD
    if kind is not _HandlerKind.RECORD and scheme != "raw":
        raise WrongArguments(f"--scheme: expected raw with --{kind.name.lower()}, got {scheme!r}")
    if kind is not _HandlerKind.RECORD and config.order != "unordered":
        raise WrongArguments(f"--order: expected unordered with --{kind.name.lower()}, got {config.order!r}")
    if config.guarantee == "at_most_once":
        raise WrongArguments("--guarantee: expected at_least_once or none on Spark, got 'at_most_once'")
    function = find_handler(handler)
    _check_parameters(function, kind)
    try:
        resolve(scheme)  # refused now, rather than when Spark has started
    except InvalidConfig as error:
        raise WrongArguments(f"--{error}") from error
    files = existing(py_files or ())
    _check_world(ctx.obj, config)
    job = _Job(config=config, kind=kind, function=function, scheme=scheme)
    # From the start on: a PySpark that is interrupted while it launches its JVM leaves that running for ever.
    dead_lettered = 0
    with open_view(json=json, per_shard=per_shard, log_level=log_level) as view, _stop_signals() as stop:
        spark = start_spark(config.app, master, files)
        try:
            stop.listen()  # again: a Spark context takes SIGINT for itself
            if stop.signal is None:
                dead_lettered = _follow(job.start(spark), stop, view, until_caught_up=until_caught_up)
        finally:
            stop_spark(spark)
    _tell_dead_letters(config, dead_lettered, fail=fail_on_dead_letters)
    if stop.signal is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _check_world(world: "World", config: SpoutConfig) -> None:
    """Meet now, rather than when Spark has started, what would end the run then.

    A stream that does not answer may do so later, and a consumer waits longer for it than this: that is only told.
    """
    for check in world.checks(config):
        try:
            check()
        except KinesisError as error:
            if not error.retriable:
                raise
            said = respelled(str(error), as_argument)
            note(f"not reached yet, and tried again when Spark has started: {said}")


def find_handler(name: str) -> Callable[..., None]:
    """Import ``module:function``; the working directory comes first, as with ``python -m``.

    Raises:
        WrongArguments: it cannot be imported, or is nothing to call.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise WrongArguments(f"expected MODULE:HANDLER, as in my_module:handle, got {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything
        raise WrongArguments(
            f"expected an importable module {module_name!r} (looked in {Path.cwd()} first), got "
            f"{type(error).__name__}: {error}; --debug shows where"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise WrongArguments(f"expected {path!r} in the module {module_name!r}, found none")
        found = getattr(found, part)
    if not callable(found):
        raise WrongArguments(f"expected {name!r} to be a function, got a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _check_parameters(function: Callable[..., None], kind: _HandlerKind) -> None:
    """Refuse a handler that cannot be called with what its kind is given."""
    given = {_HandlerKind.RECORD: ("record",), _HandlerKind.ARROW: ("batch", "collector")}.get(
        kind, ("rows", "collector")
    )
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a function of C may not tell
    try:
        signature.bind(*given)
    except TypeError as error:
        raise WrongArguments(
            f"expected a handler that can be called with ({', '.join(given)}), got "
            f"{getattr(function, '__name__', type(function).__name__)}{signature}: {error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is to be run."""

    config: SpoutConfig
    kind: _HandlerKind
    function: Callable[..., None]
    scheme: str

    def start(self, spark: "SparkSession") -> "SpoutQuery":
        """Start the query. Raises what goes wrong at a start."""
        from kinesis_spout.kinesis_spout import KinesisSpout  # noqa: PLC0415 - needs PySpark

        spout = KinesisSpout(self.config, scheme=self.scheme)
        query: SpoutQuery = getattr(spout, self.kind.value)(spark, self.function)
        return query


class _Stop:
    """Whether, and by which signal, the run was told to stop. Mutable."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._told = threading.Event()
        self._starting = True

    def listen(self) -> None:
        """Have SIGINT and SIGTERM told to this."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self.tell)

    def started(self) -> None:
        """From now on the progress shows that it stops."""
        self._starting = False

    def tell(self, number: int, _frame: object) -> None:
        """Handle a signal: the first asks for a clean stop; of the next ones SIGINT breaks it off."""
        if self.signal is None:
            self.signal = signal.Signals(number)
            self._told.set()
            if self._starting:
                # Not by way of sys.stderr, which may be in the middle of a write.
                os.write(_STANDARD_ERROR, _STOPPING_AT_START)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> bool:
        """Wait to be told, but no longer than that."""
        return self._told.wait(seconds)


@contextlib.contextmanager
def _stop_signals() -> Iterator[_Stop]:
    """Let SIGINT and SIGTERM ask for a stop, and not PySpark, which would cancel every job."""
    stop = _Stop()
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_dead_letters(config: SpoutConfig, count: int, *, fail: bool) -> None:
    """Say at the end that there are dead letters, and where.

    Raises:
        DeadLettered: there are, and they are to ``fail`` the run.
    """
    if not count:
        return
    records = "1 record was" if count == 1 else f"{count:,} records were"
    text = (
        f"{records} dead-lettered: `kinesis-spout dead-letters list --stream {config.stream} --app {config.app}` "
        "shows them"
    )
    if fail:
        raise DeadLettered(text)
    note(text)


class _Patience:
    """How long a run that is to end by itself stays paused. Mutable."""

    def __init__(self, *, endless: bool) -> None:
        self._endless = endless
        self._until: float | None = None

    def is_over(self, *, paused: bool) -> bool:
        """Look whether the query has paused for too long."""
        if not paused or self._endless:
            self._until = None
            return False
        self._until = self._until or time.monotonic() + _LONGEST_PAUSE_SECONDS
        return time.monotonic() >= self._until


def _follow(query: "SpoutQuery", stop: _Stop, view: ProgressView, *, until_caught_up: bool) -> int:
    """Show the progress until the query ends, is caught up, or is told to stop; then stop it.

    Returns:
        How many records were dead-lettered.

    Raises:
        What ended the query, or kept the last progress from being stored. PausedTooLong: it is to catch up, and
        practically every record fails.
    """
    stop.started()
    reading = Reading(query)
    caught_up = _in_background(query.processAllAvailable) if until_caught_up else Future()
    show_at = 0.0
    patience, given_up_for = _Patience(endless=not until_caught_up), None
    try:
        while query.isActive and not caught_up.done():
            pause = query.pause
            if patience.is_over(paused=pause is not None) and pause is not None:
                given_up_for = pause_text(pause)
                break
            if time.monotonic() >= show_at:
                view.show(reading.take("running"))
                show_at = time.monotonic() + _REFRESH_SECONDS
            if stop.wait(_LOOK_SECONDS):
                view.show(reading.take("stopping"))
                break
    finally:
        _stop_query(query)
    error = query.exception()
    view.show(reading.take("stopped" if error is None else "failed"))
    if isinstance(error, KinesisSpoutError):
        raise error
    if error is not None:
        text = str(error).partition("\n")[0]
        raise SparkFailed(
            f"the query ended with {type(error).__name__}: {text}; --debug shows more"
        ) from error
    if given_up_for is not None:
        raise PausedTooLong(
            f"{given_up_for}, for {_LONGEST_PAUSE_SECONDS:g} s. No record was given up meanwhile; mend the "
            "handler, or what it needs, and run again"
        )
    return query.counters.dead_lettered


def _stop_query(query: "SpoutQuery") -> None:
    try:
        query.stop()
    except KinesisSpoutError:
        if query.exception() is None:  # else that is the error to be told, and this one its consequence
            raise


def _in_background(work: Callable[[], None]) -> "Future[None]":
    """Do it on a thread that nobody waits for, not even when a second Ctrl-C ends the process."""
    done: Future[None] = Future()

    def do() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - what ended the query; its exception() tells it too
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=do, name="kinesis-spout-caught-up", daemon=True).start()
    return done
