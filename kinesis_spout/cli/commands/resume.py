"""``kinesis-spout resume``: let a consumer go on that has paused because practically every record failed."""

from typing import TYPE_CHECKING

import typer

from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.misspelt import check_begun
from kinesis_spout.cli.output import note
from kinesis_spout.cli.settings import configured
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World


@configured(streams=Streams.EACH)
def resume(ctx: typer.Context, config: SpoutConfig) -> None:
    """Let a consumer go on at once that has paused, as practically every record failed.

    It notices within a second or so. Without this it goes on by itself, when one of the records that it tries now
    and then succeeds. If they fail all the same it pauses again.

    Next: `kinesis-spout shards` shows whether it reads, or has paused.
    """
    world: World = ctx.obj
    with world.progress(config) as progress:
        check_begun(progress, config)
        members = progress.coordinator.resume()
    for member in members:
        note(f"{member} goes on")
    if not members:
        note("no consumer has paused")
