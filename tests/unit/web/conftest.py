from collections.abc import Iterator

import pytest

from tests.unit.web.page_world import PageWorld


@pytest.fixture
def world() -> Iterator[PageWorld]:
    world = PageWorld()
    yield world
    if hasattr(world, "page"):
        world.page.state.pages.watched.close(5.0)
