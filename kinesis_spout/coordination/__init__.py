"""What processes of one application need from each other, as small protocols; the others are in ``ports``.

How ZooKeeper does it is ``zookeeper.members``'. Begin with ``coordinator``; ``term`` is how long a leader leads.
Each has one contract test suite in ``tests/contract``, for the fake in ``kinesis_spout.testing`` and for the real
thing. Every method is called from one thread at a time per object, unless it says otherwise.
"""

from kinesis_spout.coordination.coordinator import (
    DEFAULT_SESSION_TIMEOUT_SECONDS,
    MAX_SESSION_TIMEOUT_SECONDS,
    Coordinator,
)
from kinesis_spout.coordination.election import Elected, Election
from kinesis_spout.coordination.group import Group

__all__ = [
    "DEFAULT_SESSION_TIMEOUT_SECONDS",
    "MAX_SESSION_TIMEOUT_SECONDS",
    "Coordinator",
    "Elected",
    "Election",
    "Group",
]
