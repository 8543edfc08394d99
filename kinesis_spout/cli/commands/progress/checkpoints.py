"""``kinesis-spout checkpoints``: the stored progress, as it is, and how to change it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kinesis_spout.cli.commands.progress.reset_plan import Move, checkpoint_text, parse_target, plan_reset
from kinesis_spout.cli.confirmation import Yes, confirm
from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.misspelt import check_begun
from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.settings import configured
from kinesis_spout.cli.stored_progress import OperatorStore, StoredProgress
from kinesis_spout.model.errors import CheckpointUnreadable, ConsumerAlive, StoreError
from kinesis_spout.settings import SpoutConfig
from shard_state import Checkpoint, SequenceNumber

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World


checkpoints = typer.Typer(
    no_args_is_help=True,
    help="Look at the stored progress of an application on a stream, and change it.",
)

_HEADINGS: Final = ("shard", "goes on", "epoch", "owner", "holes", "unfinished", "retries")
_KEYS: Final = (
    "shard_id", "parents", "owner", "unreadable", "checkpoint", "start", "goes_on_at", "epoch", "app_instance",
    "anchor", "holes", "unfinished",
)  # fmt: skip
"""Of a shard's document; what cannot be read is null."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@checkpoints.command()
@configured(streams=Streams.EACH)
def show(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """Show the stored progress of every shard, readable or not. Does not connect to Kinesis.

    Next: `kinesis-spout shards` compares it with the stream; `checkpoints reset` moves it.
    """
    world: World = ctx.obj
    with world.progress(config) as progress:
        check_begun(progress, config)
        application = progress.store.read_application()
        members = progress.coordinator.members()
        owners = progress.store.owners()
        stored, unreadable = _stored(progress.store)
    rows = [
        _document(shard_id, stored[shard_id], owners.get(shard_id), unreadable.get(shard_id))
        for shard_id in stored
    ]
    if json:
        begun = None
        if application is not None:
            begun = {"stream_created": application.stream_created, "start": str(application.start)}
        print_json(
            {
                "app": config.app,
                "stream": config.stream_name,
                "begun": begun,
                "members": members,
                "shards": rows,
            }
        )
    elif application is None and not rows:
        note(f"{config.app} has not begun on {config.stream_name}: nothing is stored. `run` begins it")
    else:
        print_table(
            _HEADINGS,
            [_cells(row, stored[row["shard_id"]]) for row in rows],
            f"{config.app} on {config.stream_name}; members: {', '.join(members) or 'none'}",
            cutting={"owner"},
        )
    for error in unreadable.values():
        note(error)
    if unreadable:
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
    """Make the application go on elsewhere. Refused while one of its consumers is alive.

    Every shard that the stream lists is set, finished parents too, as if the application began there. What
    lies between the old checkpoint and the new one is delivered again, or not at all.
    """
    world: World = ctx.obj
    target = parse_target(to, world.time())
    with world.progress(config) as progress:
        check_begun(progress, config)
        application = progress.store.read_application()
        if application is None:
            raise StoreError(
                f"{config.app} has not begun on {config.stream_name}; there is nothing to reset. "
                "`initial_position` says where its first start begins"
            )
        _refuse_while_alive(progress, "reset")
        stream = world.stream(config)
        application.check_stream(stream.lister.summary().created, f"{config.app} on {config.stream_name}")
        stored, _ = _stored(progress.store)
        moves = plan_reset(target, stream.lister.list_shards(), stored, shard or ())
        if target.is_sequence_number:
            # Refused now, rather than by the consumer that would start there.
            stream.open_getter(moves[0].shard_id, target.position).read(1)
        if not json:
            print_table(("shard", "stored", "new", ""), [_move_cells(move) for move in moves])
        confirm("reset the progress", yes=yes)
        progress.store.reset({move.shard_id: move.after for move in moves if move.after is not None})
    if json:
        print_json([_move_document(move) for move in moves])
    else:
        note("done: the next consumer to start goes on there")


@checkpoints.command()
@configured()
def forget(ctx: typer.Context, config: SpoutConfig, *, yes: Yes = False, json: Json = False) -> None:
    """Remove all stored progress of the application on the stream. Refused while a consumer is alive.

    For a stream that was deleted and made again, whose old progress means nothing, and for applications that
    are no more. The next start is a first start, at the setting initial_position. Does not connect to Kinesis.
    """
    world: World = ctx.obj
    with world.progress(config) as progress:
        _refuse_while_alive(progress, "forget")
        shard_ids = progress.store.shard_ids()
        check_begun(progress, config)
        if shard_ids and not json:
            typer.echo(
                f"{config.app} on {config.stream_name}: shards with progress to remove: {len(shard_ids)}"
            )
        confirm("forget the progress", yes=yes)
        progress.store.forget()
    if json:
        print_json({"app": config.app, "stream": config.stream_name, "forgotten": shard_ids})
    else:
        note("done: the next start is a first start")


def _stored(store: OperatorStore) -> tuple[dict[str, Checkpoint | None], dict[str, str]]:
    """Read every shard; where one cannot be read, None, and why."""
    stored: dict[str, Checkpoint | None] = {}
    unreadable: dict[str, str] = {}
    for shard_id in store.shard_ids():
        try:
            found = store.read_shard(shard_id)
        except CheckpointUnreadable as error:
            stored[shard_id], unreadable[shard_id] = None, str(error)
        else:
            if found is not None:
                stored[shard_id] = found[0]
    return stored, unreadable


def _refuse_while_alive(progress: StoredProgress, action: str) -> None:
    """Say so before anything is asked; the store refuses too, should one start meanwhile."""
    members = progress.coordinator.members()
    if members:
        raise ConsumerAlive(
            f"cannot {action}: expected no living consumer, found {len(members)}: {', '.join(members)}"
        )


def _document(
    shard_id: str, checkpoint: Checkpoint | None, owner: str | None, unreadable: str | None
) -> dict[str, Any]:
    if checkpoint is None:
        return dict.fromkeys(_KEYS) | {"shard_id": shard_id, "owner": owner, "unreadable": unreadable}
    return dict.fromkeys(_KEYS) | {
        "shard_id": shard_id,
        "parents": None if checkpoint.parents is None else list(checkpoint.parents),
        "owner": owner,
        "checkpoint": str(checkpoint.base),
        "start": str(checkpoint.start),
        "goes_on_at": None if checkpoint.is_shard_end else str(checkpoint.read_from),
        "epoch": checkpoint.epoch,
        "app_instance": checkpoint.app_instance,
        "anchor": _text(checkpoint.anchor),
        "holes": [[str(after), str(last)] for after, last in checkpoint.holes],
        "unfinished": [
            {"sequence_number": str(sequence), "attempts": attempts}
            for sequence, attempts in checkpoint.attempts
        ],
    }


def _text(sequence: SequenceNumber | None) -> str | None:
    return None if sequence is None else str(sequence)


def _cells(row: Mapping[str, Any], checkpoint: Checkpoint | None) -> list[str]:
    owner = row["owner"] or "-"
    if checkpoint is None:
        return [row["shard_id"], "unreadable", "-", owner, "-", "-", "-"]
    return [
        row["shard_id"],
        checkpoint_text(checkpoint),
        str(checkpoint.epoch),
        owner,
        str(len(checkpoint.holes)),
        str(len(checkpoint.attempts)),
        str(sum(attempts - 1 for _, attempts in checkpoint.attempts)),
    ]


def _move_cells(move: Move) -> list[str]:
    document = _move_document(move)
    return [move.shard_id, document["before"] or "-", document["after"] or "unchanged", move.reason]


def _move_document(move: Move) -> dict[str, Any]:
    return {
        "shard_id": move.shard_id,
        "before": None if move.before is None else checkpoint_text(move.before),
        "after": None if move.after is None else checkpoint_text(move.after),
        "reason": move.reason or None,
    }
