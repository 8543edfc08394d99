"""The commands ``topology explain`` and ``topology show``; ``run`` has a module of its own."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from kinesis_spout.cli.failures import WrongArguments
from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.topologies.found_topology import Named, find_topology
from kinesis_spout.cli.topologies.progress_file import newest_counts
from kinesis_spout.cli.topologies.run_topology import run
from kinesis_spout.model.errors import InvalidConfig

topology: Final = typer.Typer(
    help="Explain, draw and run topologies: spouts and bolts, acked as whole trees of tuples.",
    no_args_is_help=True,
)


class _Format(Enum):
    MERMAID = "mermaid"
    SVG = "svg"


@topology.command()
def explain(
    name: Named, *, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show how a topology runs: its stages, what is exchanged between them, its ackers. Nothing is started.

    Bolts of one stage run in the tasks that make their tuples; each exchange carries all that goes on.

    Next: `topology show` draws it, `topology run` runs it.
    """
    from kinesis_spout.storm.picture import explanation_of  # noqa: PLC0415 - slow to import
    from kinesis_spout.storm.spark.start import check_runnable  # noqa: PLC0415

    found = find_topology(name)
    if json:
        print_json(explanation_of(found.name, found.graph, found.options).document())
    else:
        for line in found.explain().splitlines():
            typer.echo(line)
    try:
        check_runnable(found)
    except InvalidConfig as error:
        note(f"`topology run` refuses it so far: {error}")


@topology.command()
def show(
    name: Named,
    *,
    kind: Annotated[
        _Format, typer.Option("--format", help="Mermaid is text, for Markdown; SVG is a picture by itself.")
    ] = _Format.MERMAID,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it there; else on standard output.", show_default=False),
    ] = None,
    progress: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What `topology run --progress FILE` writes: its newest counts are shown.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw a topology; with --progress, with what each component has executed, emitted, acked and failed."""
    found = find_topology(name)
    counts = None if progress is None else newest_counts(progress, found.graph.order)
    picture = found.svg(counts) if kind is _Format.SVG else found.mermaid(counts)
    if output is None:
        typer.echo(picture, nl=False)
        return
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise WrongArguments(f"--output: expected a file that can be written, got {error}") from error
    note(f"wrote {output}")


topology.command()(run)
