"""The nodes of one application on one stream.

/{root}/{app}/{stream}           the mark that the application has begun
    shards/{shardId}             checkpoint
    members/{member}             ephemeral: one for each living consumer, with its own description
    leader/queue/…               ephemeral: the members that stand for leadership; the first one leads
    assignment                   which member should own which shard; written by the leader only
    draining/{member}            this member should own nothing; kept until it leaves
    owners/{shardId}             ephemeral: the fence of every checkpoint write
    paused/{member}              ephemeral: this member pauses; it resumes when the node is removed
    halted/{shardId}             an operator has paused this shard; ~all: the whole application
    audit/entry-{number}         what an operator changed; the last ones are kept
    attached/{name}              what is stored with the checkpoints in one transaction, such as a topology's
                                 state

/{root}/~leaders/{name}          where processes stand for election; no application can have this name
/{root}/~coalescing/{name}       where processes coalesce requests
/{root}/~held/{digest}           ephemeral: work that one session at a time does, such as a redrive of letters
"""

import hashlib

from kinesis_spout.model.errors import InvalidConfig

DEFAULT_ROOT = "kinesis_spout"
_MAX_NAME_LENGTH = 255
_RESERVED_ROOT = "zookeeper"


class Paths:
    """The places of one application on one stream. Immutable. Raises InvalidConfig for a name that is refused."""

    def __init__(self, *, root: str = DEFAULT_ROOT, app: str, stream: str) -> None:
        for field, name in (("root", root), ("app", app), ("stream", stream)):
            check_name(field, name)
        if root == _RESERVED_ROOT:
            raise InvalidConfig(f"root={root!r} is ZooKeeper's own place; choose another name")
        self.root = root
        self.app = app
        self.stream = stream
        self.root_node = f"/{root}"
        self.app_node = f"/{root}/{app}"
        self.base = base = f"/{root}/{app}/{stream}"
        self.shards = f"{base}/shards"
        self.members = f"{base}/members"
        self.owners = f"{base}/owners"
        self.leader = f"{base}/leader"
        self.assignment = f"{base}/assignment"
        self.draining = f"{base}/draining"
        self.paused = f"{base}/paused"
        self.operator_pauses = f"{base}/halted"
        self.attached = f"{base}/attached"
        self.audit = f"{base}/audit"
        self.audit_entry = f"{base}/audit/entry-"
        """The beginning of an entry's path; ZooKeeper adds its number."""

    def attachment(self, name: str) -> str:
        return f"{self.attached}/{name}"

    def shard(self, shard_id: str) -> str:
        return f"{self.shards}/{shard_id}"

    def owner(self, shard_id: str) -> str:
        return f"{self.owners}/{shard_id}"

    def member(self, member: str) -> str:
        return f"{self.members}/{member}"

    def drain(self, member: str) -> str:
        return f"{self.draining}/{member}"

    def operator_pause(self, name: str) -> str:
        return f"{self.operator_pauses}/{name}"

    def pause(self, member: str) -> str:
        return f"{self.paused}/{member}"


def offices(root: str) -> tuple[str, str]:
    """Return the root, and in it the parent of all elections that belong to no application."""
    return f"/{root}", f"/{root}/~leaders"


def office(root: str, name: str) -> str:
    return f"{offices(root)[1]}/{name}"


def coalescing_place(root: str, name: str) -> tuple[str, ...]:
    """Return the place where requests of that name are coalesced, after its parents."""
    return f"/{root}", f"/{root}/~coalescing", f"/{root}/~coalescing/{name}"


def held_work(root: str, work: str) -> tuple[str, ...]:
    """Return the node that is made by the session that does the work, after its parents."""
    digest = hashlib.sha256(work.encode()).hexdigest()
    return f"/{root}", f"/{root}/~held", f"/{root}/~held/{digest}"


def check_name(field: str, name: str) -> str:
    """Return ``name`` if it can be one element of a ZooKeeper path, else raise InvalidConfig."""
    if (
        not isinstance(name, str)
        or not name
        or len(name) > _MAX_NAME_LENGTH
        or "/" in name
        or name in {".", ".."}
        or not name.isprintable()
    ):
        raise InvalidConfig(
            f"{field}={str(name)[:80]!r} cannot be a name in ZooKeeper: expected 1 to {_MAX_NAME_LENGTH} "
            "printable characters without '/', and not '.' or '..'"
        )
    return name
