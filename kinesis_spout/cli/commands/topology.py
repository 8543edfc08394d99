"""``kinesis-spout topology``: explains, draws and runs topologies."""

import signal
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinesis_spout.cli.failures import INTERRUPTED, BrokenTopology
from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.runs.following import run_query, tell_dead_letters
from kinesis_spout.cli.runs.progress_views import Goal, open_view
from kinesis_spout.cli.runs.snapshot import TopologySnapshots
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
from kinesis_spout.cli.runs.users_code import Named, find_topology
from kinesis_spout.cli.shared_options import Json
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.world import check_ready
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.storm import Topology

topology: Final = typer.Typer(
    help="Explain, draw and run topologies of spouts and bolts.",
    no_args_is_help=True,
)


@topology.command()
def explain(name: Named, *, json: Json = False) -> None:
    """Show a topology's stages, exchanges and ackers.

    Bolts of one stage run in the tasks that make their tuples; each exchange carries all that leaves a stage.
    This starts nothing.

    Next: `kinesis-spout topology show MODULE:BUILDER` draws it, `kinesis-spout topology run MODULE:BUILDER`
    runs it.
    """
    from kinesis_spout.storm.picture import Explanation  # noqa: PLC0415 - slow to import
    from kinesis_spout.storm.spark.start import check_runnable  # noqa: PLC0415

    found = find_topology(name)
    if json:
        print_json(Explanation(found.name, found.graph, found.options).document())
    else:
        for line in found.explain().splitlines():
            typer.echo(line)
    try:
        check_runnable(found)
    except InvalidConfig as error:
        note(f"`topology run` would refuse it: {error}")


@topology.command()
def show(name: Named) -> None:
    """Draw a topology as a Mermaid flowchart.

    In Python `mermaid()` of a running query has what each component did, too.
    """
    typer.echo(find_topology(name).mermaid(), nl=False)


@topology.command()
def run(
    ctx: typer.Context,
    topology: Named,
    *,
    master: Master = None,
    name: Annotated[
        str | None, typer.Option(help="The query's name; the topology's unless given.", show_default=False)
    ] = None,
    py_files: PyFiles = None,
    fail_on_dead_letters: FailOnDeadLetters = False,
    json: JsonLines = False,
    no_progress: NoProgress = False,
    spark_log: SparkLog = False,
    log_level: LogAtLeast = "warning",
) -> None:
    """Run a topology on Spark, and show what each component does.

    A record is acked when its whole tree of tuples is. A tuple that fails or times out fails its record: the
    record is retried, and in the end dead-lettered. On a cluster, send the module with --py-files.

    The run ends at Ctrl-C or SIGTERM, or by itself where all its spouts have the setting `until`. A stop
    finishes the records in flight, stores the progress, and exits with 130 after Ctrl-C, with 0 after SIGTERM.
    A second Ctrl-C does not wait.

    Next: `kinesis-spout shards` and `kinesis-spout dead-letters list` for each spout.
    """
    from kinesis_spout.storm.spark.start import check_runnable  # noqa: PLC0415 - slow to import

    found = find_topology(topology)
    try:
        check_runnable(found)
    except InvalidConfig as error:
        raise BrokenTopology(f"{topology}: {error}") from error
    files = existing(py_files or ())
    configs = _configs(found)
    for config in configs.values():
        check_ready(ctx.obj, config)
    goal = Goal.of(list(configs.values()))
    query, stopped_by = run_query(
        lambda spark: found.run(spark, name=name),
        TopologySnapshots,
        spark=running_spark(name or found.name, master, files, spark_log=spark_log),
        view=open_view(
            goal=goal,
            json=json,
            progress=not no_progress,
            log_level=log_level,
        ),
        ends_by_itself=goal is not None,
    )
    spouts = {} if query is None else query.spouts
    tell_dead_letters(
        [(configs[spout], each.counters.dead_lettered) for spout, each in spouts.items() if spout in configs],
        fail=fail_on_dead_letters,
    )
    if stopped_by is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _configs(topology: "Topology") -> dict[str, SpoutConfig]:
    from kinesis_spout.kinesis_spout import KinesisSpout  # noqa: PLC0415 - slow to import

    return {
        spout.name: spout.made_of.config
        for spout in topology.graph.spouts
        if isinstance(spout.made_of, KinesisSpout)
    }
