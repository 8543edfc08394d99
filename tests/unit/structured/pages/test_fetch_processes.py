"""Processes that call GetRecords for a reader: their pages, their errors, their end."""

import base64
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage
from kinesis_spout.kinesis.read.reply_getter import call_get_records
from kinesis_spout.model.errors import AccessDenied, InvalidConfig, Throttled, Unavailable
from kinesis_spout.structured.pages import fetch_processes
from kinesis_spout.structured.pages.fetch_processes import FetchProcesses
from tests.support.waiting import DEADLINE_SECONDS
from tests.unit.processes.fips import has_begun, refuse_md5

FORM = ArrowForm(
    stream="orders", shard_id="shardId-1", settings=ReadSettings(extra_columns=("encryptionType",))
)
LARGE, SMALL, EMPTY = 2_000, 3, 0
"""Records of a page; the data of a large one are sent apart."""
CHILD = {
    "ShardId": "shardId-2",
    "ParentShards": ["shardId-1"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
}


def page(count: int) -> dict[str, Any]:
    return {
        "Records": [
            {
                "ApproximateArrivalTimestamp": 1_795_260_005.25 + number,
                "Data": base64.b64encode(bytes([number % 256]) * 1_000).decode(),
                "PartitionKey": f"key-{number}",
                "SequenceNumber": str(10**40 + number),
            }
            for number in range(count)
        ],
        "NextShardIterator": "next" if count else None,
        "MillisBehindLatest": count,
        "ChildShards": None if count else [CHILD],
    }


class Endpoint(BaseHTTPRequestHandler):
    """Answers with as many records as the iterator says, or with the error that it names."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["ShardIterator"]
        is_page = asked.isdigit()
        body = json.dumps(page(int(asked)) if is_page else {"__type": asked, "message": "so it is"}).encode()
        self.send_response(200 if is_page else 400)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def settings() -> Iterator[KinesisClientSettings]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield KinesisClientSettings(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            aws_access_key_id="test",
            aws_secret_access_key="not-to-be-seen",
        )
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def processes(settings: KinesisClientSettings) -> Iterator[FetchProcesses]:
    processes = FetchProcesses(2, settings)
    yield processes
    processes.close()


def called_here(settings: KinesisClientSettings, iterator: str) -> ArrowPage:
    return call_get_records(settings.connect(), iterator, 10, FORM, stream="orders", shard_id="here")


def started(processes: FetchProcesses) -> list[subprocess.Popen[bytes]]:
    """Give those that run; none may be at work."""
    return [process._process for process in processes._free.queue if process is not None]


@pytest.mark.parametrize("count", [EMPTY, SMALL, LARGE])
def test_a_page_is_the_same_as_if_it_were_fetched_here(
    settings: KinesisClientSettings, processes: FetchProcesses, count: int
) -> None:
    reply, expected = processes(str(count), 10, FORM), called_here(settings, str(count))

    assert reply.batch.equals(expected.batch)
    assert (reply.last, reply.next_shard_iterator) == (expected.last, expected.next_shard_iterator)
    assert reply.child_shards == expected.child_shards
    assert (reply.size_bytes, reply.at_end) == (expected.size_bytes, expected.at_end)
    assert reply.millis_behind_latest == count


@pytest.mark.parametrize(
    ("code", "kind"),
    [("ProvisionedThroughputExceededException", Throttled), ("AccessDeniedException", AccessDenied)],
)
def test_an_error_is_the_same_as_if_it_had_happened_here(
    processes: FetchProcesses, code: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"'shardId-1' of stream 'orders'.*so it is"):
        processes(code, 10, FORM)


def test_no_more_processes_run_than_are_needed_and_no_secret_is_in_their_command(
    settings: KinesisClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_processes, "_END_SECONDS", DEADLINE_SECONDS)
    processes = FetchProcesses(4, settings)
    assert started(processes) == []
    for _ in range(5):
        processes(str(SMALL), 10, FORM)
    (process,) = started(processes)

    assert "not-to-be-seen" not in str(process.args)
    processes.close()
    assert process.returncode == 0


def test_a_process_that_is_killed_costs_one_call_and_is_replaced(settings: KinesisClientSettings) -> None:
    processes = FetchProcesses(1, settings)
    processes(str(SMALL), 10, FORM)
    (process,) = started(processes)
    process.kill()

    with pytest.raises(Unavailable, match="ended"):
        processes(str(SMALL), 10, FORM)
    assert process.returncode == -signal.SIGKILL
    assert processes(str(SMALL), 10, FORM).batch.num_rows == SMALL
    processes.close()


def test_calls_at_the_same_time_use_all_processes(settings: KinesisClientSettings) -> None:
    processes = FetchProcesses(2, settings)
    rows: list[int] = []

    def fetch() -> None:
        rows.extend(processes(str(LARGE), 10, FORM).batch.num_rows for _ in range(3))

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert rows == [LARGE] * 12
    assert len(started(processes)) == 2
    processes.close()


def test_after_the_end_nothing_is_started(settings: KinesisClientSettings) -> None:
    processes = FetchProcesses(1, settings)
    processes.close()
    processes.close()

    with pytest.raises(Unavailable, match="closed"):
        processes(str(SMALL), 10, FORM)
    assert started(processes) == []


def test_a_process_ends_when_its_reader_is_gone(settings: KinesisClientSettings) -> None:
    processes = FetchProcesses(1, settings)
    processes(str(SMALL), 10, FORM)
    (reader_end,) = [process._channel for process in processes._free.queue if process is not None]
    (process,) = started(processes)
    reader_end.close()  # as the system does for a reader that was killed

    assert process.wait(timeout=60) == 0
    processes.close()


def test_pages_come_on_a_system_that_refuses_md5(
    settings: KinesisClientSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_md5(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    processes = FetchProcesses(1, settings)
    assert processes(str(LARGE), 10, FORM).batch.num_rows == LARGE
    assert has_begun(tmp_path)
    processes.close()


def test_systems_without_it_say_so(monkeypatch: pytest.MonkeyPatch, settings: KinesisClientSettings) -> None:
    monkeypatch.setattr(fetch_processes, "os", SimpleNamespace(name="nt"))
    with pytest.raises(InvalidConfig, match="fetchProcesses: expected 0"):
        FetchProcesses(2, settings)
