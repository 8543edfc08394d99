"""A commit that stops between its last look at what its consumer owns and its way to ZooKeeper, for too long.

This is the moment that fences are for. No pause of a process is sure to hit it: so a consumer is made to stop
there, its session is ended, and the commit goes on, in the consumer's next session, once others own its shards.
"""

import time
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Create, SetData

_CONNECT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05


def hold_commits(hold: Path, held: Path, seconds: float) -> None:
    """Have a commit of this process be held each time that there is a file, which is removed.

    Args:
        hold: the file.
        held: where a byte is added for each commit whose shards had another owner before it went on.
        seconds: how long to wait for that.
    """
    send = TransactionRequest.commit_async

    def commit_async(self: TransactionRequest) -> Any:
        shards = _shards_of(self)
        if shards and _taken(hold) and _outlived(self.client, shards, seconds):
            with held.open("ab") as file:
                file.write(b".")
        return send(self)

    TransactionRequest.commit_async = commit_async


def _shards_of(transaction: TransactionRequest) -> list[str]:
    """Name the nodes of a commit's shards; none of what acquires a shard."""
    if any(isinstance(each, Create) for each in transaction.operations):
        return []
    return [
        each.path for each in transaction.operations if isinstance(each, SetData) and "/shards/" in each.path
    ]


def _taken(hold: Path) -> bool:
    try:
        hold.unlink()
    except FileNotFoundError:
        return False
    return True


def _outlived(client: KazooClient, shards: list[str], seconds: float) -> bool:
    """End the session, and wait until one of the shards has a new owner, and the process a new session."""
    hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
    session, deadline = client.client_id, time.monotonic() + seconds
    observer = KazooClient(hosts, timeout=10.0)
    try:
        observer.start(_CONNECT_SECONDS)
        before = {shard: _version(observer, shard) for shard in shards}
        ending = KazooClient(hosts, client_id=session)
        ending.start(_CONNECT_SECONDS)
        ending.stop()
        ending.close()
        while time.monotonic() < deadline:
            has_another = any(_version(observer, shard) != version for shard, version in before.items())
            if has_another and client.connected and client.client_id not in {session, None}:
                return True
            time.sleep(_LOOK_SECONDS)
    except (KazooException, KazooTimeoutError):
        pass  # ZooKeeper is down as well: this is no such case
    finally:
        observer.stop()
        observer.close()
    return False


def _version(client: KazooClient, node: str) -> int | None:
    stat = client.exists(node)
    return None if stat is None else stat.version
