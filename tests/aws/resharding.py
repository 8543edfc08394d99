"""A split, then a merge. They come last: the stream never has one shard again."""

import time
from typing import Final

from tests.aws.check import Check, check
from tests.aws.scene import PATIENCE_SECONDS, Scene, expect

_MOTO: Final = "moto never ends a closed shard and moves its records to the children"


@check("over a split and a merge every record is read once, parents before children", moto=_MOTO)
def _split_and_merge(scene: Scene) -> None:
    before = scene.put_numbered("before-split", 20)
    (parent,) = [shard for shard in scene.lister.list_shards() if not shard.closed]
    middle = sum(parent.hash_range) // 2
    scene.client.split_shard(
        StreamName=scene.stream, ShardToSplit=parent.shard_id, NewStartingHashKey=str(middle)
    )
    scene.wait_active()
    between = scene.put_numbered("before-merge", 20)
    first, second = sorted(shard.shard_id for shard in scene.lister.list_shards() if not shard.closed)
    scene.client.merge_shards(StreamName=scene.stream, ShardToMerge=first, AdjacentShardToMerge=second)
    scene.wait_active()
    after = scene.put_numbered("after-merge", 20)

    met, ended = _walked(scene, parent.shard_id, len(before + between + after))
    expect(
        sorted(met) == sorted(before + between + after), f"expected each of 60 records once, got {len(met)}"
    )
    expect(ended == [parent.shard_id, *sorted([first, second])], f"expected three ends, got {ended}")


def _walked(scene: Scene, root: str, count: int) -> tuple[list[bytes], list[str]]:
    """Read from a shard on, over all ends, until so many records of this check came."""
    met: list[bytes] = []
    ended: list[str] = []
    open_ = {root: scene.getter(shard_id=root)}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(met) < count:
        expect(
            time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:g} s for {count} records, got {len(met)}"
        )
        for shard_id in sorted(open_):
            page = open_[shard_id].read(10_000)
            met += [
                record.data for record in page.records if record.data.startswith((b"before-", b"after-merge"))
            ]
            if page.at_end:
                ended.append(shard_id)
                del open_[shard_id]
                ready = [child for child in page.child_shards if set(ended).issuperset(child.parents)]
                open_ |= {child.shard_id: scene.getter(shard_id=child.shard_id) for child in ready}
    return met, ended


CHECKS: Final[tuple[Check, ...]] = (_split_and_merge,)
