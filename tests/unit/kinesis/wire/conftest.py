"""What several tests of the wire need."""

from collections.abc import Iterator

import pytest

from tests.unit.kinesis.wire.servers import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server
