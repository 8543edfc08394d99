"""``kinesis-spout fan-out``: the registered consumers of a stream, which cost money until they are ended."""

from typing import Annotated

import typer

from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.shared_options import Json, Yes, configured, confirm
from kinesis_spout.model.clock import moment
from kinesis_spout.operations import streams
from kinesis_spout.settings import SpoutConfig

fan_out = typer.Typer(
    no_args_is_help=True,
    help="Look at the consumers that are registered for enhanced fan-out, and end them.",
)


@fan_out.command("list")
@configured()
def list_registered(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """List the stream's registered consumers, of all applications.

    Next: `fan-out deregister` ends the one of this application, and what it costs.
    """
    consumers = streams.list_registered(ctx.obj, config)
    if json:
        print_json(
            [
                {"name": each.name, "arn": each.arn, "status": each.status, "created": each.created}
                for each in consumers
            ]
        )
    elif consumers:
        rows = [(each.name, each.status, moment(each.created), each.arn) for each in consumers]
        print_table(("consumer", "status", "registered", "ARN"), rows, whole={"consumer"})
    else:
        note(f"stream {config.stream} has no registered consumers")


@fan_out.command()
@configured()
def deregister(
    ctx: typer.Context,
    config: SpoutConfig,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CONSUMER", help="As `fan-out list` shows it; the application's unless given."
        ),
    ] = None,
    *,
    yes: Yes = False,
) -> None:
    """End a registered consumer: it costs nothing any more. Stop the application first.

    A consumer that still runs would register it again with its next subscription. Progress is not touched: it
    is in ZooKeeper, and the application continues from it, by fan-out or by polling.
    """
    consumer = streams.find_registered(ctx.obj, config, name)
    confirm(f"end consumer {consumer!r} of stream {config.stream!r}", yes=yes)
    streams.deregister(ctx.obj, config, consumer)
    note(f"consumer {consumer!r} of stream {config.stream!r} is ended")
