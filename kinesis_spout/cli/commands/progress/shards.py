"""``kinesis-spout shards``: where each shard stands, without becoming a consumer."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.commands.progress.reset_plan import checkpoint_text
from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.misspelt import check_begun
from kinesis_spout.cli.output import duration, note, print_blank, print_json, print_table
from kinesis_spout.cli.progress import progress
from kinesis_spout.cli.settings import configured
from kinesis_spout.cli.views.group_view import take_group_view
from kinesis_spout.cli.views.shard_view import Backlog, ShardState, ShardView, take_view
from kinesis_spout.cli.world import Stream, World
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.settings import SpoutConfig
from shard_state import Position

_READERS: Final = 16
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
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each shard: its state, owner, checkpoint, lag, and what is known to be unfinished.

    "lag" is what Kinesis says of the first record after the checkpoint (MillisBehindLatest), "oldest"
    is that record's age. The states: waiting (for its parents), ready (nobody reads it now), reading, paused
    (practically every record failed), paused by an operator, over (all of it is finished), gone (trimmed by
    retention before it was finished), not begun.

    Below them stand the living members, which share the shards; one of them leads.

    Next: `checkpoints show` for the stored progress in full, `dead-letters list` for what was given up.
    """
    world: World = ctx.obj
    stream = world.stream(config)
    listed = stream.lister.list_shards()
    with world.progress(config) as progress:
        check_begun(progress, config)
        views = take_view(listed, progress)
        group = take_group_view(progress)
    if lag:
        views = _with_backlogs(views, stream, world.time())
    if json:
        print_json(
            group.document()
            | {"shards": [_document(view, group.assignment.owners.get(view.shard_id)) for view in views]}
        )
    else:
        print_table(_HEADINGS, [_cells(view) for view in views], cutting={"owner"})
        if group.members:
            print_blank()
            group.print()
    for view in views:
        assigned = group.assignment.owners.get(view.shard_id)
        if view.owner is not None and assigned not in {None, view.owner}:
            note(f"{view.shard_id} is being handed over by {view.owner} to {assigned}")
    for owner, pause in dict.fromkeys((view.owner, view.pause) for view in views if view.pause):
        note(f"{owner} has {pause}; `kinesis-spout resume` lets it go on")
    if any(view.state is ShardState.PAUSED_BY_OPERATOR for view in views):
        note("an operator has paused shards; `kinesis-spout resume` lets them go on")
    problems = [view for view in views if view.problem]
    for view in problems:
        note(f"{view.shard_id}: {view.problem}")
    if problems:
        raise typer.Exit(KinesisError.exit_code)


def _document(view: ShardView, assigned_to: str | None) -> dict[str, Any]:
    return view.document() | {"assigned_to": assigned_to}


def _with_backlogs(views: Sequence[ShardView], stream: Stream, now: float) -> list[ShardView]:
    found: dict[str, ShardView] = {}
    with ThreadPoolExecutor(_READERS, "kinesis-spout-lag") as readers:
        reads = [
            readers.submit(_with_backlog, view, stream, view.read_from, now)
            for view in views
            if view.read_from is not None
        ]
        with progress("reading each shard's lag", len(reads)) as advance:
            for read in as_completed(reads):
                view = read.result()
                found[view.shard_id] = view
                advance(1)
    return [found.get(view.shard_id, view) for view in views]


def _with_backlog(view: ShardView, stream: Stream, position: Position, now: float) -> ShardView:
    try:
        # Behind a user record lies what follows its aggregate, if all of that is done.
        page = stream.open_getter(view.shard_id, position).read(2 if position.is_done else 1)
    except KinesisError as error:
        return view.with_problem(str(error))
    arrived = page.records[0].arrival_timestamp if page.records else None
    return view.with_backlog(
        Backlog(
            lag_millis=page.millis_behind_latest,
            oldest_unread_millis=None if arrived is None else max(0, round((now - arrived) * 1000)),
        )
    )


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
        str(len(view.unfinished)),
        str(document["retries"]),
        str(document["holes"]),
    ]
