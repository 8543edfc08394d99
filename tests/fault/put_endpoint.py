"""A Kinesis endpoint that only takes records, and appends the data of each to a file, a line each.

It is quick enough for a machine that is busy with killing, which the emulators are not. Now and then a tenth of
the records of a call is refused, so that producers put again. ``python -m tests.fault.put_endpoint FILE`` prints
its port.
"""

import base64
import json
import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str((1 << 128) - 1)},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
THROTTLED = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"}


class Stream:
    """What was taken. Mutable; for any number of threads."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._draws = random.Random(1)
        self._taken = 0

    def put(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer PutRecords."""
        results: list[dict[str, Any]] = []
        with self._lock:
            refuses = self._draws.random() < 0.1
            for record in records:
                if refuses and self._draws.random() < 0.1:
                    results.append(THROTTLED)
                    continue
                self._taken += 1
                self._file.write(base64.b64decode(record["Data"]).rstrip() + b"\n")
                results.append({"ShardId": SHARD["ShardId"], "SequenceNumber": str(self._taken)})
            self._file.flush()
        return {"FailedRecordCount": results.count(THROTTLED), "Records": results}


def handler(stream: Stream) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            _, _, call = self.headers["X-Amz-Target"].partition(".")
            answer = json.dumps(
                stream.put(request["Records"]) if call == "PutRecords" else {"Shards": [SHARD]}
            )
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    return Answers


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing: it is a producer that was killed in the middle of a call."""


def main() -> None:
    with Path(sys.argv[1]).open("wb") as file:
        server = Server(("127.0.0.1", 0), handler(Stream(file)))
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()  # until whoever started it has ended


if __name__ == "__main__":
    main()
