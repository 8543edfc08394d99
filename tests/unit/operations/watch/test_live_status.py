"""What members say of themselves is asked for at once, bounded, and never trusted."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kinesis_spout.monitoring.status import status_of
from kinesis_spout.operations.watch import live_status
from kinesis_spout.operations.watch.live_status import LiveStatus, ask_members
from kinesis_spout.operations.watch.live_status import ask as ask_for
from kinesis_spout.settings import SpoutConfig
from shard_state import GroupMember

Answering = Callable[[Any], None]


@pytest.fixture
def served() -> Iterator[Callable[[Answering], str]]:
    servers: list[ThreadingHTTPServer] = []

    def serve(answer: Answering) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/status?app=billing&stream=orders"
                answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _answers_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a busy machine."""
    monkeypatch.setattr(live_status, "_TIMEOUT_SECONDS", 60.0)


def ask(address: str, member: str = "worker") -> LiveStatus:
    return ask_for(address, "billing", "orders", member)


def says(document: Any) -> Answering:
    def answer(handler: Any) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_a_member_says_what_it_does(served: Callable[[Answering], str]) -> None:
    status = ask(
        served(
            says(
                {
                    "state": "reading",
                    "records_per_second": 12.5,
                    "shards": [{"shard_id": "a", "lag_millis": 3, "unknown": 1}],
                    "retrying": [
                        {"shard_id": "a", "sequence_number": "7", "attempts": 2, "kind": "KeyError"}
                    ],
                    "components": {"split": {"executed": 5, "executeLatencyMs": 0.5, "completeLatencyMs": 0}},
                    "something_new": {},
                }
            )
        )
    )
    assert (status.state, status.records_per_second, status.problem) == ("reading", 12.5, None)
    assert [(each.shard_id, each.lag_millis) for each in status.shards] == [("a", 3)]
    assert status.retrying is not None
    assert status.retrying[0].kind == "KeyError"
    assert status.components["split"].latency_millis == 0.5


def test_what_has_another_form_is_unknown_and_hides_nothing_else(served: Callable[[Answering], str]) -> None:
    status = ask(
        served(says({"state": 7, "in_flight": "many", "acked": 3, "shards": "none", "problem": "x"}))
    )
    assert status == LiveStatus(acked=3)


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b"", b"\xff", b"[" * 100_000, b"x" * (2 << 20)])
def test_an_answer_that_cannot_be_read_is_a_problem(served: Callable[[Answering], str], body: bytes) -> None:
    assert ask(served(says(body))).problem is not None


def test_an_answer_that_comes_in_drops_is_not_waited_for(
    served: Callable[[Answering], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_status, "_TIMEOUT_SECONDS", 1.0)
    gone = threading.Event()

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not gone.wait(0.1):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    address = served(drip)
    problem = ask(address).problem
    gone.set()
    assert problem is not None
    assert "within 1 s" in problem


def test_a_member_that_does_not_answer_or_refuses_is_a_problem(served: Callable[[Answering], str]) -> None:
    problem = ask("127.0.0.1:1").problem
    assert problem is not None
    assert "127.0.0.1:1 does not answer" in problem
    assert ask(served(lambda handler: handler.send_error(503))).problem is not None
    redirected = ask(served(lambda handler: (handler.send_response(302), handler.end_headers())[0]))
    assert redirected.problem is not None


@pytest.mark.parametrize("address", ["", "host", "host:port", "http://host:80", "user@host:80", "a b:80"])
def test_what_is_no_address_is_not_asked(address: str) -> None:
    assert ask(address).problem == "its member node names no address of the form host:port"


def test_only_members_that_name_an_address_are_asked(served: Callable[[Answering], str]) -> None:
    members = [GroupMember(name="quiet"), GroupMember(name="loud", http=served(says({"state": "reading"})))]
    config = SpoutConfig.of(app="billing", stream="orders")
    assert ask_members(members, config) == {"loud": LiveStatus(state="reading")}


def test_of_a_process_with_several_spouts_the_one_of_this_member_is_taken(
    served: Callable[[Answering], str],
) -> None:
    several = {"several": [{"member": "other", "acked": 1}, {"member": "worker", "acked": 2}, 7]}
    address = served(says(several))
    assert ask(address).acked == 2
    assert ask(address, "third").problem is not None


def test_of_a_spout_of_several_streams_the_shards_of_this_one_are_taken(
    served: Callable[[Answering], str],
) -> None:
    shards = [{"shard_id": "orders/a"}, {"shard_id": "returns/a"}, {"shard_id": "b"}]
    assert [each.shard_id for each in ask(served(says({"shards": shards}))).shards] == ["a", "b"]


def test_what_the_monitoring_server_says_is_understood() -> None:
    """Every field of ours that it fills has the form that is expected here."""
    document = status_of(object(), [], [])  # type: ignore[arg-type]
    known = set(LiveStatus.__struct_fields__) - {"problem", "retrying", "components", "retried"}
    assert known <= document.keys()
