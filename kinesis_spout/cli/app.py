"""The command ``kinesis-spout`` with its commands."""

from typing import Annotated, Final

import typer

import kinesis_spout
from kinesis_spout.cli.commands.checkpoints import checkpoints
from kinesis_spout.cli.commands.checks import doctor, health
from kinesis_spout.cli.commands.dead_letters import dead_letters
from kinesis_spout.cli.commands.group import audit, members, pause, resume, shards
from kinesis_spout.cli.commands.reference import metrics, options
from kinesis_spout.cli.commands.run import run
from kinesis_spout.cli.commands.spool import spool
from kinesis_spout.cli.commands.streams import fan_out, put, tail
from kinesis_spout.cli.commands.topology import topology
from kinesis_spout.cli.commands.web import web
from kinesis_spout.cli.failures import OneLineErrors
from kinesis_spout.cli.output import Terminal
from kinesis_spout.operations.world import World

_HELP: Final = """\
Reliable Kinesis consumption for PySpark: every record ends acked, or in the dead letters.

`kinesis-spout run my_module:handle --stream orders --app billing` calls your handler for every record.
`kinesis-spout shards` shows where each shard stands, `kinesis-spout dead-letters list` which records were
given up. `kinesis-spout doctor` checks what is missing.
"""

_EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 failed, 2 usage or settings, 3 Kinesis, 4 ZooKeeper or stored progress, 5 refused "
    "while a consumer is alive, 6 dead letters, 7 some records were dead-lettered (`run --fail-on-dead-letters`), "
    "8 practically every record failed (`run --until`), 130 interrupted."
)

_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=OneLineErrors,
    help=_HELP,
    epilog=_EXIT_CODES,
    rich_markup_mode=None,  # at 80 columns its boxes leave half of them for the help
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables would show secrets
    context_settings=_CONTEXT,
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if value:
        typer.echo(f"kinesis-spout {kinesis_spout.__version__}")
        raise typer.Exit


@app.callback()
def _begin(
    ctx: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    del debug, show_version  # read by OneLineErrors, and by the option's callback
    ctx.obj = ctx.obj or World(Terminal())


app.command()(run)
app.add_typer(topology, name="topology")
app.command()(shards)
app.add_typer(members, name="members")
app.command()(pause)
app.command()(resume)
app.add_typer(checkpoints, name="checkpoints")
app.add_typer(dead_letters, name="dead-letters")
app.command()(audit)
app.command()(web)
app.command()(health)
app.add_typer(fan_out, name="fan-out")
app.command()(put)
app.command()(tail)
app.add_typer(spool, name="spool")
app.command()(options)
app.command()(metrics)
app.command()(doctor)


def main() -> None:
    app(prog_name="kinesis-spout")
