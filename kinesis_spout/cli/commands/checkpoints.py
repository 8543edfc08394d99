"""``kinesis-spout checkpoints``: the stored progress, as it is, and how to change it."""

from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.shared_options import Json, Streams, Yes, configured, confirm
from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.operations.checkpoints import (
    checkpoint_text,
    planned_forgetting,
    planned_reset,
    view_checkpoints,
)
from kinesis_spout.settings import SpoutConfig
from shard_state import Checkpoint

checkpoints = typer.Typer(
    no_args_is_help=True,
    help="Show or change an application's stored progress.",
)

_HEADINGS: Final = ("shard", "goes on", "epoch", "owner", "holes", "unfinished", "retries")


@checkpoints.command()
@configured(streams=Streams.EACH)
def show(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """Show the stored progress of every shard.

    It also lists progress that cannot be read, and does not connect to Kinesis.

    Next: `kinesis-spout shards` compares it with the stream, `kinesis-spout checkpoints reset --to PLACE`
    moves it.
    """
    view = view_checkpoints(ctx.obj, config)
    if json:
        print_json(view.document(config))
    elif view.begun is None and not view.stored:
        note(f"{config.app} has not begun on {config.stream_name}: nothing is stored. `run` begins it")
    else:
        print_table(
            _HEADINGS,
            [_cells(shard_id, each, view.owners.get(shard_id)) for shard_id, each in view.stored.items()],
            f"{config.app} on {config.stream_name}; members: {', '.join(view.members) or 'none'}",
            cutting={"owner"},
        )
    for error in view.unreadable.values():
        note(error)
    if view.unreadable:
        raise typer.Exit(CheckpointUnreadable.exit_code)


@checkpoints.command()
@configured()
def reset(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="trim_horizon, latest, an ISO 8601 time with its zone, seconds since the epoch, or (with one "
            '--shard) "at_sequence_number 123": that record is then the first to be delivered.',
        ),
    ],
    shard: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this shard; repeatable.")
    ] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make the application continue elsewhere.

    This sets every shard that the stream lists, finished parents too, as if the application began there.
    Records between the old checkpoint and the new one are delivered again, or never. It is refused while a
    consumer of the application is alive.
    """
    with planned_reset(ctx.obj, config, to, shard or ()) as (moves, carry_out):
        documents = [move.document() for move in moves]
        if not json:
            print_table(("shard", "stored", "new", ""), [_move_cells(each) for each in documents])
        confirm("reset the progress", yes=yes)
        carry_out()
    if json:
        print_json(documents)
    else:
        note("done: the next consumer to start continues there")


@checkpoints.command()
@configured()
def forget(ctx: typer.Context, config: SpoutConfig, *, yes: Yes = False, json: Json = False) -> None:
    """Remove an application's stored progress on a stream.

    Use it for a stream that was deleted and made again, or an application that no longer exists. The next start
    is a first start, at the setting initial_position. It is refused while a consumer of the application is
    alive, and does not connect to Kinesis.
    """
    with planned_forgetting(ctx.obj, config) as (shard_ids, carry_out):
        if shard_ids and not json:
            typer.echo(
                f"{config.app} on {config.stream_name}: shards with progress to remove: {len(shard_ids)}"
            )
        confirm("forget the progress", yes=yes)
        carry_out()
    if json:
        print_json({"app": config.app, "stream": config.stream_name, "forgotten": shard_ids})
    else:
        note("done: the next start is a first start")


def _cells(shard_id: str, checkpoint: Checkpoint | None, owner: str | None) -> list[str]:
    if checkpoint is None:
        return [shard_id, "unreadable", "-", owner or "-", "-", "-", "-"]
    return [
        shard_id,
        checkpoint_text(checkpoint),
        str(checkpoint.epoch),
        owner or "-",
        str(len(checkpoint.holes)),
        str(len(checkpoint.attempts)),
        str(sum(attempts - 1 for _, attempts in checkpoint.attempts)),
    ]


def _move_cells(document: dict[str, Any]) -> list[str]:
    return [
        document["shard_id"],
        document["before"] or "-",
        document["after"] or "unchanged",
        document["reason"] or "",
    ]
