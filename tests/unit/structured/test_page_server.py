import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from kinesis_spout.kinesis.arrow import SCHEMA
from kinesis_spout.structured.page_buffer import PageBuffer, Segment
from kinesis_spout.structured.page_server import PageServer, fetch_segments
from tests.unit.structured.pages import page_of, sequences_of


class Pages:
    def __init__(self) -> None:
        self.buffer = PageBuffer()
        for start in (0, 10, 20):
            self.buffer.append(("orders", "a"), page_of(range(start, start + 10)), data_bytes=100)

    def find(self, segment: Segment) -> pa.RecordBatch | None:
        page = self.buffer.page(segment.page)
        return None if page is None else page.batch.slice(segment.offset, segment.rows)


@pytest.fixture
def server() -> Iterator[PageServer]:
    served = PageServer("127.0.0.1", Pages().find)
    yield served
    served.close()


def fetched(server: PageServer, *segments: Segment) -> list[list[int]]:
    return [sequences_of(batch) for batch in fetch_segments(server.address, segments, SCHEMA)]


def test_segments_come_whole_and_in_their_order(server: PageServer) -> None:
    assert fetched(server, Segment(1, 8, 2), Segment(2, 0, 3)) == [[18, 19], [20, 21, 22]]


def test_a_connection_serves_many_tasks(server: PageServer) -> None:
    for row in range(10):
        assert fetched(server, Segment(0, row, 1)) == [[row]]


def test_it_ends_where_a_page_is_gone(server: PageServer) -> None:
    assert fetched(server, Segment(0, 0, 1), Segment(7, 0, 1), Segment(1, 0, 1)) == [[0]]
    assert fetched(server, Segment(1, 0, 1)) == [[10]]


def test_a_task_that_gives_up_in_the_middle_disturbs_no_other(server: PageServer) -> None:
    abandoned = fetch_segments(server.address, [Segment(0, 0, 5), Segment(1, 0, 5)], SCHEMA)
    assert sequences_of(next(abandoned)) == [0, 1, 2, 3, 4]
    abandoned.close()
    assert fetched(server, Segment(2, 0, 1)) == [[20]]


def test_who_does_not_know_the_key_gets_nothing(server: PageServer, caplog: pytest.LogCaptureFixture) -> None:
    stranger = replace(server.address, key=b"guessed")
    with caplog.at_level(logging.ERROR):
        assert list(fetch_segments(stranger, [Segment(0, 0, 1)], SCHEMA)) == []
    assert fetched(server, Segment(0, 0, 1)) == [[0]]


def test_a_server_that_is_not_there_is_asked_once_only(caplog: pytest.LogCaptureFixture) -> None:
    gone = PageServer("127.0.0.1", Pages().find)
    gone.close()
    for _ in range(3):
        assert list(fetch_segments(gone.address, [Segment(0, 0, 1)], SCHEMA)) == []
    assert len([record for record in caplog.records if "cannot be reached" in record.message]) == 1


def test_the_key_is_not_in_the_text_of_an_address(server: PageServer) -> None:
    assert repr(server.address.key) not in repr(server.address)
