"""The versions of a topology's state on the driver: the one in force, and the one that is committed."""

import secrets
from collections.abc import Mapping, Sequence

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate


class StateVersions:
    """A consumer's companion (see ``kinesis_spout.consumer.ports``). Mutable; call it under the consumer's lock.

    Args:
        topology: its name, and that of the attachment.
        parallelism: of each stateful bolt.
    """

    def __init__(self, topology: str, parallelism: Mapping[str, int]) -> None:
        self.name = topology
        self._parallelism = dict(parallelism)
        self._current: StateManifest | None = None
        self._committed: StateManifest | None = None
        self._offered: dict[bytes, StateManifest] = {}
        """What was given to be committed and has not been reported as such: it may be what is stored."""

    @property
    def current(self) -> StateManifest | None:
        """The state that the next micro-batch begins with; None while it is not known: no shard is owned then."""
        return self._current

    @property
    def outgrown(self) -> Mapping[str, int]:
        """The bolts whose state was made by another number of tasks, with the number of now: see ``rescale``."""
        current = self._current
        if current is None:
            return {}
        return {
            component: tasks
            for component, tasks in self._parallelism.items()
            if current.components[component].parallelism != tasks
        }

    def settled(self, began_with: StateManifest, updates: Sequence[StateUpdate], time: float = 0.0) -> bool:
        """Take in what a micro-batch has changed, at the moment when its records are taken as finished.

        Args:
            began_with: ``current`` when the micro-batch was planned.
            updates: of its tasks.
            time: its processing time.

        Returns:
            Whether it counts. It does not where the state was lost or replaced since: its records must not be
            taken as finished then.
        """
        if self._current is not began_with:
            return False
        if updates:
            self._current = began_with.with_updates(updates, time)
        return True

    def replaced(self, before: StateManifest, after: StateManifest) -> bool:
        """Have another layout of the same state, as ``rescale`` gives it; False if it was lost meanwhile."""
        if self._current is not before:
            return False
        self._current = after
        return True

    def kept(self) -> tuple[StateManifest, ...]:
        """Give every manifest whose files must be kept."""
        known = (self._committed, *self._offered.values(), self._current)
        return tuple({id(each): each for each in known if each is not None}.values())

    # What the consumer calls

    def load(self, stored: bytes | None) -> None:
        """See ``Companion``. Where nothing is stored the state begins, empty.

        Raises:
            StateUnreadable: what is stored cannot be read, or is of another topology.
        """
        manifest = None if stored is None else StateManifest.decode(stored)
        if manifest is not None and manifest.topology != self.name:
            raise StateUnreadable(
                f"expected the manifest of the state of topology {self.name!r}, got that of {manifest.topology!r}"
            )
        began = manifest or StateManifest(topology=self.name, life=secrets.token_hex(6))
        self._committed, self._offered = manifest, {}
        self._current = began.with_components(self._parallelism)

    def attachment(self) -> bytes | None:
        current = self._current
        if current is None or current is self._committed:
            return None
        data = current.encode()
        self._offered[data] = current
        return data

    def committed(self, data: bytes) -> None:
        manifest = self._offered.get(data)
        if manifest is not None:
            self._committed, self._offered = manifest, {}

    def lost(self) -> None:
        self._current, self._committed, self._offered = None, None, {}
