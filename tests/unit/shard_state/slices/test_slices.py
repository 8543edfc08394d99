import pytest

from shard_state import Position, SliceKind, SlicePlan

pytestmark = pytest.mark.no_second_run


@pytest.mark.parametrize(
    ("kind", "fresh"), [(SliceKind.READ, True), (SliceKind.CARRIED, True), (SliceKind.RETRY, False)]
)
def test_only_a_slice_of_retries_does_not_move_the_shard_forward(kind: SliceKind, *, fresh: bool) -> None:
    plan = SlicePlan(
        shard_id="a", epoch=1, kind=kind, limit=1, position=Position.trim_horizon(), max_failures=1
    )
    assert plan.is_fresh == fresh
