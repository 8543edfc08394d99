"""Runs a query until it ends: shows its progress, and stops it on SIGINT or SIGTERM."""

import math
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar

from kinesis_spout.cli.failures import DeadLettered, PausedTooLong, SparkFailed
from kinesis_spout.cli.output import note
from kinesis_spout.cli.runs.progress_views import View
from kinesis_spout.consumer.trouble_reports import trouble_text
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.processes.stop_signals import Stop, stop_signals
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesis_spout.cli.runs.snapshot import QuerySnapshots, Snapshot, TopologySnapshots
    from kinesis_spout.spark.driver.query import SpoutQuery
    from kinesis_spout.storm.spark.topology_query import TopologyQuery

Q = TypeVar("Q", bound="SpoutQuery | TopologyQuery")

_LOOK_SECONDS: Final = 0.1
_REFRESH_SECONDS: Final = 1.0
_STOPPING_AT_START: Final = b"stopping when the start is done; a second Ctrl-C does not wait\n"
_LONGEST_PAUSE_SECONDS: Final = 120.0
"""A run that should end by itself gives up after being slowed for so long."""


def run_query(
    start: Callable[["SparkSession"], Q],
    reading: Callable[[Q], "QuerySnapshots | TopologySnapshots"],
    *,
    spark: AbstractContextManager["SparkSession"],
    view: AbstractContextManager[View],
    ends_by_itself: bool,
) -> tuple[Q | None, signal.Signals | None]:
    """Start Spark and a query, show its progress until it ends or a signal comes; then stop both.

    Args:
        start: starts the query.
        reading: takes a snapshot of it, each second, and once when it has ended.
        spark: starts Spark, and stops it.
        view: where it is shown.
        ends_by_itself: whether the query has an `until`.

    Gives the query, None if a signal came before it; and that signal, or the one that stopped it. Raises what
    ended the query, or kept the last progress from being stored. PausedTooLong: it should end, and
    practically every record fails.
    """
    query = None
    # From the start on: a PySpark that is interrupted while it launches its JVM leaves that running for ever.
    with view as shown, stop_signals(_STOPPING_AT_START) as stop, spark as session:
        stop.listen()  # again: a Spark context takes SIGINT for itself
        if stop.signal is None:
            query = start(session)
            stop.text = b""  # the view shows it
            _follow(query, stop, shown, reading(query).take, ends_by_itself=ends_by_itself)
    return query, stop.signal


def _follow(
    query: Q,
    stop: Stop,
    view: View,
    take: "Callable[[str], Snapshot]",
    *,
    ends_by_itself: bool,
) -> None:
    show_at, give_up_at, given_up_for = 0.0, math.inf, None
    try:
        while query.isActive:
            trouble, now = query.trouble, time.monotonic()
            if trouble is None or not trouble.slowed or not ends_by_itself:
                give_up_at = math.inf
            else:
                give_up_at = min(give_up_at, now + _LONGEST_PAUSE_SECONDS)
                if now >= give_up_at:
                    given_up_for = trouble_text(trouble)
                    break
            if now >= show_at:
                view.show(take("running"))
                show_at = time.monotonic() + _REFRESH_SECONDS
            if stop.wait(_LOOK_SECONDS):
                view.show(take("stopping"))
                break
    finally:
        _stop_query(query)
    view.show(take("stopped" if query.exception() is None else "failed"))
    _raise_what_ended(query, given_up_for)


def _raise_what_ended(query: "SpoutQuery | TopologyQuery", given_up_for: str | None) -> None:
    error = query.exception()
    if isinstance(error, KinesisSpoutError):
        raise error
    if error is not None:
        text = ", ".join([str(error).partition("\n")[0], *getattr(error, "__notes__", ())])
        raise SparkFailed(
            f"the query ended with {type(error).__name__}: {text}; `kinesis-spout --debug …` shows more"
        ) from error
    if given_up_for is not None:
        raise PausedTooLong(
            f"{given_up_for}, for {_LONGEST_PAUSE_SECONDS:g} s. No record was given up meanwhile; fix the "
            "handler, or what it depends on, and run again"
        )


def tell_dead_letters(counts: Iterable[tuple[SpoutConfig, int]], *, fail: bool) -> None:
    """Say at the end how many records of each spout were dead-lettered, and ``fail`` the run if there are any."""
    texts = [_dead_letters_text(config, count) for config, count in counts if count]
    if texts and fail:
        raise DeadLettered("\n".join(texts))
    for text in texts:
        note(text)


def _dead_letters_text(config: SpoutConfig, count: int) -> str:
    records = "1 record was" if count == 1 else f"{count:,} records were"
    return (
        f"{records} dead-lettered: `kinesis-spout dead-letters list --stream {config.stream} --app {config.app}` "
        "shows them"
    )


def _stop_query(query: "SpoutQuery | TopologyQuery") -> None:
    try:
        query.stop()
    except KinesisSpoutError:
        if query.exception() is None:  # else that is the error to show, and this one its consequence
            raise
