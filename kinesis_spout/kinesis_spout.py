"""``KinesisSpout``: all doors into one core."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import refuse_unfinished_function
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.documentation import with_settings
from kinesis_spout.settings.table import SETTINGS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.consumer.ports import Companion
    from kinesis_spout.spark.dataframe.dataframe_runner import Collector
    from kinesis_spout.spark.driver.query import SpoutQuery
    from kinesis_spout.spark.tasks.handlers import AnyHandler, ArrowCollector
    from kinesis_spout.spark.tasks.jobs import BatchRunner
    from kinesis_spout.spark.tasks.task import TaskSettings


@with_settings(SETTINGS.values())
class KinesisSpout(RecordSpout):
    """Reads a Kinesis stream, or several, reliably: every record ends acked, or in the dead letters.

    Plain Python uses Storm's verbs (``open``, ``next_tuple``, ``ack``, ``fail``; see ``RecordSpout``). On Spark
    one of the ``foreach_`` methods starts a query, whose handler runs for every record on the executors. Each
    query is a consumer of its own, and each gets its own connections; stop it by its handle.

        spout = KinesisSpout("orders", app="billing", initial_position="trim_horizon", retry_limit=3)

    Args:
        stream: the setting of that name, which may also be given by its name.
        config: the settings as a `SpoutConfig`. Without it they are keyword arguments over the environment
            variables ``KINESIS_SPOUT_NAME``.
        ports: what to use instead of Kinesis and ZooKeeper, for tests.
        scheme: what a tuple's values are: "raw" (the `Record`), "json", "text", or a function of the `Record`.
        listener: hears the outcome of each record, in plain Python.
        settings: see below.

    Raises:
        InvalidConfig: names the setting, its value and what is allowed.
    """

    def foreach_record(
        self,
        spark: "SparkSession",
        handler: Callable[[Any], object],
        *,
        name: str | None = None,
    ) -> "SpoutQuery":
        """Call ``handler(values)`` for each record, on the executors, inside the task that reads it.

        Returning acks the record. Raising fails it: it is delivered again, until the retry limit, and then
        dead-lettered. ``Reject`` dead-letters it at once, ``RetryLater`` chooses the delay. The values are
        what the spout's scheme makes of the record (the ``Record`` itself, unless another was chosen); a
        scheme that raises fails the record as well.

        With the setting ``concurrency`` several records of a shard are handled at a time, on threads. A handler
        that is a coroutine function runs in an event loop, which lives as long as its worker keeps the handler;
        it too is given one record at a time unless ``concurrency`` says more. ``record_timeout_seconds`` fails a
        record whose handler takes longer.

        Args:
            spark: a classic session, best one from ``kinesis_spout.spark.session``.
            handler: pickled once, loaded once per Python worker. A plain function or an ``async def``.
            name: the query's name; the application's unless given.

        Raises:
            InvalidConfig: the handler is a generator function.
            KinesisSpoutError: what goes wrong at the start is raised here: no such stream, no permission, no
                ZooKeeper, unreadable progress.
        """
        from kinesis_spout.spark.tasks.handlers import record_handler  # noqa: PLC0415 - plain Python needs no Spark

        config = self.config
        made = record_handler(
            handler,
            self._scheme,
            concurrency=config.concurrency,
            timeout_seconds=config.record_timeout_seconds,
            traced_for=config.app if config.tracing else None,
        )
        return self._run(spark, made, name, door="foreach_record")

    def foreach_arrow(
        self,
        spark: "SparkSession",
        handler: "Callable[[pa.RecordBatch, ArrowCollector], None]",
        *,
        name: str | None = None,
    ) -> "SpoutQuery":
        """Call ``handler(batch, collector)`` for Arrow batches of each shard, on the executors.

        Returning acks all rows but those given to ``collector.fail(rows, reason)``. When it raises, the batch
        is halved until the failing rows stand alone. The columns are those of ``kinesis_spout.kinesis.SCHEMA``.
        Their buffers are the page's own, and immutable as in all of Arrow: a handler that writes into them, by
        NumPy for example, changes the records that are delivered again.

        Raises:
            InvalidConfig: an order other than "unordered" is set; a batch cannot wait for one of its rows. Or the
                handler is a generator function or an ``async def``.
        """
        from kinesis_spout.spark.tasks.handlers import ArrowHandler, TracedArrowHandler  # noqa: PLC0415

        self.refuse_order("foreach_arrow")
        refuse_unfinished_function("handler", handler)
        config = self.config
        made = TracedArrowHandler(handler, config.app) if config.tracing else ArrowHandler(handler)
        return self._run(spark, made, name, door="foreach_arrow")

    def foreach_batch(
        self,
        spark: "SparkSession",
        handler: "Callable[[DataFrame, Collector], None]",
        *,
        name: str | None = None,
    ) -> "SpoutQuery":
        """Call ``handler(df, collector)`` on the driver with each micro-batch as a DataFrame.

        Several actions on ``df`` see the same rows and read Kinesis once. Returning acks all rows but those
        given to ``collector.fail(rows, reason)``. When it raises, the batch is planned again shard by shard,
        then halved, until the rows that make it raise stand alone.

        The batch is kept on the executors while the handler runs, in memory or on disk. Every row of it may
        fail, so ``max_pending`` bounds how many there are of one shard.

        Raises:
            InvalidConfig: an order other than "unordered" is set; a batch cannot wait for one of its rows. Or
                the session has ``spark.speculation``: two attempts of a task would read different rows. Or the
                handler is a generator function or an ``async def``.
        """
        from kinesis_spout.spark.dataframe.dataframe_runner import DataFrameRunner  # noqa: PLC0415

        self.refuse_order("foreach_batch")
        refuse_unfinished_function("handler", handler)

        def runner(context: "SparkContext", settings: "TaskSettings") -> "BatchRunner":
            return DataFrameRunner(spark, context, settings, handler)

        return self.start_batches(spark, runner, name, door="foreach_batch")

    def start_batches(
        self,
        spark: "SparkSession",
        make_runner: "Callable[[SparkContext, TaskSettings], BatchRunner]",
        name: str | None,
        *,
        door: str,
        config: SpoutConfig | None = None,
        companion: "Companion | None" = None,
    ) -> "SpoutQuery":
        """Start a query whose micro-batches a runner runs; every door on Spark comes through here.

        Args:
            spark: a classic session.
            make_runner: makes it of the session's context and of what its tasks need to know.
            name: the query's; the application's unless given.
            door: what the user called, for the log and for errors.
            config: instead of the spout's own.
            companion: what is stored with the progress, and changes with it.

        Raises:
            KinesisSpoutError: as ``foreach_record``.
        """
        self._refuse_at_most_once(door)
        from kinesis_spout.spark.driver.query import start_query, task_settings  # noqa: PLC0415
        from kinesis_spout.spark.tasks.jobs import classic_context  # noqa: PLC0415

        config = config or self.config
        if config.is_several and companion is not None:
            raise InvalidConfig(
                f"stream: expected one stream for a topology that keeps state, got {config.stream!r}: state is "
                "exact because it is stored in one transaction with the progress of all that it has taken in, and "
                "each stream has its own progress. Read each stream with a topology and an app of its own; or, if "
                'their keys meet, put the records onto one stream; or use format("kinesis"), which reads several '
                "with Spark's state"
            )
        context = classic_context(spark)
        return start_query(
            config,
            self._streams_ports(config),
            context,
            lambda of_one: make_runner(context, task_settings(of_one)),
            name,
            door=door,
            companion=companion,
        )

    def _run(
        self,
        spark: "SparkSession",
        handler: "AnyHandler",
        name: str | None,
        *,
        door: str,
    ) -> "SpoutQuery":
        from kinesis_spout.spark.long_tasks.spark_cluster import with_long_tasks  # noqa: PLC0415
        from kinesis_spout.spark.pickled_handler import PickledHandler  # noqa: PLC0415
        from kinesis_spout.spark.tasks.handler_runner import HandlerRunner  # noqa: PLC0415

        pickled = PickledHandler.of(handler)

        def runner(context: "SparkContext", settings: "TaskSettings") -> "BatchRunner":
            jobs = HandlerRunner(context, settings, pickled)
            return with_long_tasks(jobs, context, life_seconds=self.config.long_task_seconds)

        return self.start_batches(spark, runner, name, door=door)

    @property
    def scheme(self) -> Callable[[Record], Any]:
        """The function that makes a tuple's values of a record."""
        return self._scheme

    def refuse_order(self, door: str) -> None:
        """Refuse an order, or a concurrency, that a door cannot keep."""
        config = self.config
        if config.concurrency != 1 or config.record_timeout_seconds is not None:
            raise InvalidConfig(
                f"expected neither `concurrency` nor `record_timeout_seconds` with {door}, got "
                f"{config.concurrency} and {config.record_timeout_seconds}: they are of foreach_record, whose "
                "handler is called record by record"
            )
        if self.config.order != "unordered":
            raise InvalidConfig(
                f'expected `order="unordered"` with {door}, got {self.config.order!r}: rows of a batch are '
                "handled together and cannot wait for each other. Use foreach_record for that order"
            )

    def _refuse_at_most_once(self, door: str) -> None:
        if self.config.guarantee == "at_most_once":
            raise InvalidConfig(
                f'expected `guarantee="at_least_once"` or "none" with {door}, got "at_most_once": when a worker '
                "of Spark dies, nobody knows which of its records were handled. Use next_tuple for that guarantee"
            )
