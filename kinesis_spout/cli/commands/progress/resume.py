"""``kinesis-spout resume``: end the pauses of an operator, and those of consumers whose records all failed."""

from typing import TYPE_CHECKING

import typer

from kinesis_spout.cli.commands.progress.pause import Shards
from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.failures import WrongArguments
from kinesis_spout.cli.misspelt import check_begun
from kinesis_spout.cli.output import note
from kinesis_spout.cli.settings import configured
from kinesis_spout.cli.stored_progress import StoredProgress
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World


@configured(streams=Streams.EACH)
def resume(ctx: typer.Context, config: SpoutConfig, *, shard: Shards = None) -> None:
    """End all pauses: those by an operator (`pause`), and those of consumers whose records practically all failed.

    It is noticed within a second or so. A consumer that has paused by itself also goes on by itself, when one of
    the records that it tries now and then succeeds. If they fail all the same it pauses again.

    With --shard only that shard goes on, which an operator has paused by itself.

    Next: `kinesis-spout shards` shows whether it reads, or has paused.
    """
    world: World = ctx.obj
    with world.progress(config) as progress:
        check_begun(progress, config)
        if shard:
            _resume_shards(progress, shard)
            return
        by_operator, members = progress.group.resume(None), progress.coordinator.resume()
    if by_operator.everything:
        note("the whole application goes on")
    for name in (*sorted(by_operator.shards), *members):
        note(f"{name} goes on")
    if not (by_operator or members):
        note("no consumer has paused")


def _resume_shards(progress: StoredProgress, shard_ids: list[str]) -> None:
    if progress.group.paused().everything:
        raise WrongArguments(
            "--shard: expected a shard that is paused by itself, but the whole application is paused: resume it "
            "without --shard, and pause the others"
        )
    for shard_id in shard_ids:
        ended = progress.group.resume(shard_id)
        note(f"{shard_id} goes on" if ended else f"{shard_id} is not paused by an operator")
