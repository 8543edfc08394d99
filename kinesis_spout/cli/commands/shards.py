"""``kinesis-spout shards``: where each shard stands, without becoming a consumer."""

from typing import Annotated, Final

import typer

from kinesis_spout.cli.commands.group import print_members
from kinesis_spout.cli.output import duration, note, print_blank, print_json, print_table
from kinesis_spout.cli.shared_options import Json, Streams, configured
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.operations.checkpoints import checkpoint_text
from kinesis_spout.operations.shards import ShardView, view_shards
from kinesis_spout.settings import SpoutConfig

_HEADINGS: Final = (
    "shard", "state", "parents", "owner", "goes on", "lag", "oldest", "unfinished", "retries", "holes",
)  # fmt: skip


@configured(streams=Streams.EACH)
def shards(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    lag: Annotated[
        bool, typer.Option(help="Read one record of each shard, at its checkpoint, to find the lag.")
    ] = True,
    json: Json = False,
) -> None:
    """Show each shard: its state, owner, checkpoint, lag, and what is known to be unfinished.

    "lag" is what Kinesis says of the first record after the checkpoint (MillisBehindLatest), "oldest"
    is that record's age. The states: waiting (for its parents), ready (no member reads it now), reading, paused
    (practically every record failed), paused by an operator, over (all of it is finished), gone (trimmed by
    retention before it was finished), not begun.

    Below them stand the living members, which share the shards; one of them leads.

    Next: `checkpoints show` for the stored progress in full, `dead-letters list` for what was given up.
    """
    view = view_shards(ctx.obj, config, lag=lag)
    if json:
        print_json(view.document())
    else:
        print_table(_HEADINGS, [_cells(each) for each in view.shards], cutting={"owner"})
        if view.group.members:
            print_blank()
            print_members(view.group)
    for text in view.notes:
        note(text)
    if any(each.problem for each in view.shards):
        raise typer.Exit(KinesisError.exit_code)


def _cells(view: ShardView) -> list[str]:
    document = view.document()
    unread, lag = document["oldest_unread_millis"], document["lag_millis"]
    return [
        view.shard_id,
        f"{view.state.value}, closed" if view.closed else view.state.value,
        ", ".join(view.parents) or "-",
        view.owner or "-",
        "-" if view.checkpoint is None else checkpoint_text(view.checkpoint),
        "?" if view.problem else "-" if lag is None else duration(lag),
        "-" if unread is None else duration(unread),
        str(len(document["unfinished"])),
        str(document["retries"]),
        str(document["holes"]),
    ]
