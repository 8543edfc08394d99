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
"""

from dataclasses import dataclass

from kinesis_spout.model.errors import InvalidConfig

DEFAULT_ROOT = "kinesis_spout"
_MAX_NAME_LENGTH = 255
_RESERVED_ROOT = "zookeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The places of one application on one stream. Raises InvalidConfig for a name that ZooKeeper refuses."""

    root: str = DEFAULT_ROOT
    app: str
    stream: str

    def __post_init__(self) -> None:
        """Refuse names that ZooKeeper would refuse, or that would mean another place."""
        for field, name in (("root", self.root), ("app", self.app), ("stream", self.stream)):
            check_name(field, name)
        if self.root == _RESERVED_ROOT:
            raise InvalidConfig(f"root={self.root!r} is ZooKeeper's own place; choose another name")

    @property
    def root_node(self) -> str:
        return f"/{self.root}"

    @property
    def app_node(self) -> str:
        return f"/{self.root}/{self.app}"

    @property
    def base(self) -> str:
        return f"/{self.root}/{self.app}/{self.stream}"

    @property
    def shards(self) -> str:
        return f"{self.base}/shards"

    @property
    def members(self) -> str:
        return f"{self.base}/members"

    @property
    def owners(self) -> str:
        return f"{self.base}/owners"

    @property
    def leader(self) -> str:
        return f"{self.base}/leader"

    @property
    def assignment(self) -> str:
        return f"{self.base}/assignment"

    @property
    def draining(self) -> str:
        return f"{self.base}/draining"

    @property
    def paused(self) -> str:
        return f"{self.base}/paused"

    @property
    def operator_pauses(self) -> str:
        return f"{self.base}/halted"

    @property
    def attached(self) -> str:
        return f"{self.base}/attached"

    @property
    def audit(self) -> str:
        return f"{self.base}/audit"

    @property
    def audit_entry(self) -> str:
        """The beginning of an entry's path; ZooKeeper adds its number."""
        return f"{self.audit}/entry-"

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


def check_name(field: str, name: str) -> str:
    """Return ``name`` if it can be one element of a ZooKeeper path, else raise InvalidConfig."""
    if (
        not name
        or len(name) > _MAX_NAME_LENGTH
        or "/" in name
        or name in {".", ".."}
        or not name.isprintable()
    ):
        raise InvalidConfig(
            f"{field}={name[:80]!r} cannot be a name in ZooKeeper: expected 1 to {_MAX_NAME_LENGTH} printable "
            "characters without '/', and not '.' or '..'"
        )
    return name
