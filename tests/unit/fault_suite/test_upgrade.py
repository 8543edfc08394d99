"""Whom the run over two releases replaces and kills."""

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.fault.suite.judgement.evidence import CLOSED, KILLED
from tests.fault.suite.world import Plan
from tests.fault.upgrade.__main__ import Upgrade

if TYPE_CHECKING:
    from tests.fault.suite.world import World


class UpgradeThatNotes(Upgrade):
    """Ends nobody. Mutable."""

    def __init__(self, consumers: list[Any]) -> None:
        world = SimpleNamespace(consumers=consumers, plan=Plan(seed=1, events=0, seconds=0.0))
        super().__init__(cast("World", world), lambda _text: None)
        self.ended: list[tuple[str, str]] = []
        self._random = random.Random(1)

    def _end(self, consumer: Any, kind: str) -> None:
        self.ended.append((consumer.name, kind))


def consumer(name: str, *, on_spark: bool = False) -> Any:
    return SimpleNamespace(name=name, on_spark=on_spark, release=None)


@pytest.mark.parametrize(
    ("names", "ended"),
    [(["c1"], [("c1", CLOSED)]), (["c1", "c2"], [("c1", CLOSED), ("c2", KILLED)])],
)
def test_after_a_member_was_replaced_another_one_is_killed_if_there_is_one(
    names: list[str], ended: list[tuple[str, str]]
) -> None:
    plain = [consumer(name) for name in names]
    upgrade = UpgradeThatNotes([*plain, consumer("s1", on_spark=True)])

    upgrade._replace(plain[0], cast("Any", "new"))

    assert upgrade.ended == ended
    assert plain[0].release == "new"
