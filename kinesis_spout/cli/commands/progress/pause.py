"""``kinesis-spout pause``: have the consumers of an application hand out nothing more, for now."""

from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.failures import NotFound
from kinesis_spout.cli.misspelt import check_begun
from kinesis_spout.cli.output import note
from kinesis_spout.cli.settings import configured
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World

Shards = Annotated[
    list[str] | None,
    typer.Option("--shard", metavar="SHARD", help="This shard alone; repeatable. Without it: all of them."),
]


@configured(streams=Streams.EACH)
def pause(ctx: typer.Context, config: SpoutConfig, *, shard: Shards = None) -> None:
    """Hand out nothing more of an application's shards, or of some, until `resume`.

    What is in flight may end, and is stored; retries wait. Owners keep their shards. It is kept in ZooKeeper, over
    restarts and changes of owner; consumers notice within a second or so. Children of a paused shard wait for it.

    Next: `kinesis-spout shards` shows what is paused, `kinesis-spout resume` ends it.
    """
    world: World = ctx.obj
    with world.progress(config) as progress:
        check_begun(progress, config)
        if shard:
            known = {each.shard_id for each in world.stream(config).lister.list_shards()}
            for shard_id in shard:
                if shard_id not in known:
                    raise NotFound(
                        f"expected a shard of {config.stream_name}, got {shard_id}; `kinesis-spout shards` lists "
                        "them"
                    )
        for each in shard or (None,):
            progress.group.pause(each)
            note(f"{each or 'the whole application'} is paused")
