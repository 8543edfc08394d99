"""``kinesis-spout fan-out``: the registered consumers of a stream, which are paid for until they are ended."""

from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.confirmation import Yes, confirm
from kinesis_spout.cli.failures import NotFound
from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.settings import configured
from kinesis_spout.model.clock import moment
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World
    from kinesis_spout.kinesis.read.fan_out.consumer_registration import RegisteredConsumer

fan_out = typer.Typer(
    no_args_is_help=True,
    help="Look at the consumers that are registered for enhanced fan-out, and end them.",
)


@fan_out.command("list")
@configured()
def list_registered(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the stream's registered consumers, of all applications.

    Next: `fan-out deregister` ends the one of this application, and what it costs.
    """
    consumers = _consumers(ctx.obj, config)
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

    What runs still would register it again with its next subscription. Progress is not touched: it is kept in
    ZooKeeper, and the application goes on from it, by fan-out or by polling.
    """
    from kinesis_spout.kinesis.read.fan_out.consumer_registration import deregister_consumer  # noqa: PLC0415

    world: World = ctx.obj
    wanted = name or config.consumer_name or config.app
    if wanted not in {each.name for each in _consumers(world, config)}:
        raise NotFound(
            f"expected a registered consumer of stream {config.stream!r}, got {wanted!r}, which is not there: "
            "`kinesis-spout fan-out list` shows what is"
        )
    confirm(f"end consumer {wanted!r} of stream {config.stream!r}", yes=yes)
    deregister_consumer(world.client(config), _stream_arn(world, config), wanted)
    note(f"consumer {wanted!r} of stream {config.stream!r} is ended")


def _consumers(world: "World", config: SpoutConfig) -> "list[RegisteredConsumer]":
    from kinesis_spout.kinesis.read.fan_out.consumer_registration import list_consumers  # noqa: PLC0415

    return list_consumers(world.client(config), _stream_arn(world, config))


def _stream_arn(world: "World", config: SpoutConfig) -> str:
    return config.stream_arn or world.stream(config).lister.summary().arn
