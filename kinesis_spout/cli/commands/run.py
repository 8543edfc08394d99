"""``kinesis-spout run``: a handler on Spark, until a signal stops it."""

import inspect
import signal
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.failures import INTERRUPTED
from kinesis_spout.cli.runs.following import run_query, tell_dead_letters
from kinesis_spout.cli.runs.progress_views import Goal, open_view
from kinesis_spout.cli.runs.snapshot import QuerySnapshots
from kinesis_spout.cli.runs.spark_session import (
    FailOnDeadLetters,
    JsonLines,
    LogAtLeast,
    Master,
    NoProgress,
    PyFiles,
    SparkLog,
    existing,
    running_spark,
)
from kinesis_spout.cli.runs.users_code import find_in_module
from kinesis_spout.cli.shared_options import Streams, configured
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.extras import check_spark
from kinesis_spout.model.scheme import resolve
from kinesis_spout.model.unfinished_work import refuse_generator_function
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.world import check_ready
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesis_spout.spark.driver.query import SpoutQuery


class _HandlerKind(Enum):
    RECORD = "foreach_record"
    ARROW = "foreach_arrow"
    DATAFRAME = "foreach_batch"


@configured(
    "initial_position",
    "until",
    "guarantee",
    "retry_limit",
    "order",
    "concurrency",
    "dead_letters",
    "http",
    streams=Streams.ALL,
)
def run(
    ctx: typer.Context,
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:HANDLER",
            help="The function to call; the working directory is searched first for MODULE.",
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
        str,
        typer.Option(
            metavar="SCHEME", help="What a record handler gets: raw, text, json, or MODULE:CALLABLE."
        ),
    ] = "raw",
    master: Master = None,
    py_files: PyFiles = None,
    fail_on_dead_letters: FailOnDeadLetters = False,
    json: JsonLines = False,
    no_progress: NoProgress = False,
    spark_log: SparkLog = False,
    log_level: LogAtLeast = "warning",
) -> None:
    """Call a handler for every record, on Spark.

    A handler that returns acks its record. One that raises fails it: the record is retried, and in the end
    dead-lettered. The run ends at Ctrl-C or SIGTERM, or by itself with --until; the next
    run continues there.

    A stop finishes the records in flight, stores the progress, and exits with 130 after Ctrl-C, with 0 after
    SIGTERM. A second Ctrl-C does not wait. Under systemd set KillMode=mixed, so that only this process gets
    SIGTERM.

    When practically every record fails, the run pauses and gives no record up. It continues when one succeeds,
    or after `kinesis-spout resume`. A run that should end by itself exits with 8 after two minutes of that.

    Next: `kinesis-spout shards` in another terminal, `kinesis-spout dead-letters list` afterwards.
    """
    if arrow and dataframe:
        raise WrongArguments("expected --arrow or --dataframe, got both")
    kind = _HandlerKind.ARROW if arrow else _HandlerKind.DATAFRAME if dataframe else _HandlerKind.RECORD
    for_record_handlers = (
        ("scheme", "raw", scheme),
        ("order", "unordered", config.order),
        ("concurrency", 1, config.concurrency),
    )
    for option, expected, got in for_record_handlers:
        if kind is not _HandlerKind.RECORD and got != expected:
            raise WrongArguments(f"--{option}: expected {expected} with --{kind.name.lower()}, got {got!r}")
    if config.guarantee == "at_most_once":
        raise WrongArguments("--guarantee: expected at_least_once or none on Spark, got 'at_most_once'")
    check_spark("run")
    function = find_handler(handler)
    _check_parameters(function, kind)
    try:
        resolve(scheme)  # refused now, rather than when Spark has started
    except InvalidConfig as error:
        raise WrongArguments(f"--{error}") from error
    files = existing(py_files or ())
    check_ready(ctx.obj, config)
    goal = Goal.of([config])
    query, stopped_by = run_query(
        lambda spark: _start(spark, config, kind, function, scheme),
        QuerySnapshots,
        spark=running_spark(config.app, master, files, spark_log=spark_log),
        view=open_view(
            goal=goal,
            json=json,
            progress=not no_progress,
            log_level=log_level,
        ),
        ends_by_itself=goal is not None,
    )
    if query is not None:
        tell_dead_letters([(config, query.counters.dead_lettered)], fail=fail_on_dead_letters)
    if stopped_by is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def find_handler(name: str) -> Callable[..., None]:
    found = find_in_module(name, wanted="HANDLER", example="my_module:handle")
    if not callable(found):
        raise WrongArguments(f"expected {name!r} to be a function, got a {type(found).__name__}")
    refuse_generator_function(name, found)
    return found  # type: ignore[no-any-return]


def _check_parameters(function: Callable[..., None], kind: _HandlerKind) -> None:
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


def _start(
    spark: "SparkSession", config: SpoutConfig, kind: _HandlerKind, function: Callable[..., None], scheme: str
) -> "SpoutQuery":
    from kinesis_spout.kinesis_spout import KinesisSpout  # noqa: PLC0415 - needs PySpark

    query: SpoutQuery = getattr(KinesisSpout(config=config, scheme=scheme), kind.value)(spark, function)
    return query
