"""The children that a Python worker leases from host processes: of this machine, or of another one.

Python workers come and go, so the processes of components do not belong to them. The first worker starts the
host process. It hands over the descriptors of the pipes with each lease: a worker speaks with its child
directly, and the host process only starts, keeps and ends it.

Spark runs a task on any machine, but its child stays on one. So with several machines a worker asks the
driver with each lease which that is (``placement``). It speaks with a child of another machine through the
host process there.
"""

import logging
import os
import sys
from functools import partial
from typing import Final

from msgspec.structs import replace

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.keyed_connections import Machine, connect
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.storm.hosting.pipes import DistantPipes
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings, shipped_to
from kinesis_spout.storm.hosting.processes.children import ChildKey, Lease, NotYet
from kinesis_spout.storm.hosting.processes.host_socket import (
    Answer,
    AskLease,
    AskMachine,
    Exchanged,
    GiveBack,
    Greet,
    Greeted,
    Invalid,
    LeaseAnswer,
    PipeExchange,
    Request,
    connect_here,
    receive_answer,
    send,
)
from kinesis_spout.storm.hosting.processes.placement import PlacementAddress

_ANSWER_SECONDS: Final = 20.0
"""The time that a host process of another machine may take for an answer, beyond the one it should wait."""
_log = logging.getLogger(__name__)


class HostedChildren:
    """Leases as ``OwnChildren``. Mutable; one thread's. Connects when needed first, and again after a loss.

    Without a ``placement``, where to ask for the machine of a child, all children are on this machine.
    """

    def __init__(self, application: str, placement: PlacementAddress | None = None) -> None:
        self._application = application
        self._placement = placement
        self._here: _Host | None = None
        self._elsewhere: dict[Machine, _Host] = {}
        self._held: dict[ChildKey, tuple[Lease, _Host]] = {}

    def lease(self, key: ChildKey, settings: ChildSettings, wait_seconds: float) -> Lease | NotYet:
        """As ``OwnChildren.lease``. OSError: the host process cannot be reached."""
        request = AskLease(key=key, settings=settings, wait_seconds=wait_seconds)
        host, is_new = self._host_of(key)
        try:
            answer, descriptors = host.ask(request, wait_seconds)
        except OSError:  # it has ended since it was asked last
            self._drop_host(host)
            if is_new:
                raise
            return self.lease(key, settings, wait_seconds)
        if isinstance(answer, Invalid):
            raise InvalidConfig(answer.error)
        if isinstance(answer, NotYet):
            return answer
        assert isinstance(answer, Lease)
        lease = host.leased(answer, descriptors)
        self._held[key] = lease, host
        return lease

    def greeted(self, lease: Lease) -> None:
        try:
            self._held[lease.key][1].ask(Greeted(key=lease.key, number=lease.number))
        except OSError:
            return  # there is no host process that could lease it again

    def release(self, lease: Lease, *, is_proven: bool) -> None:
        try:
            self._give_back(lease, is_proven=is_proven, has_failed=False)
        except OSError as error:
            _log.warning(
                "the host process of shell components is gone, and with it their processes: %r", error
            )

    def discard(self, lease: Lease, *, is_proven: bool) -> str:
        try:
            return self._give_back(lease, is_proven=is_proven, has_failed=True)
        except OSError as error:
            return f"the host process of shell components, which owned it, is gone: {error!r}"

    def close(self) -> None:
        for lease, _ in list(self._held.values()):
            self._drop(lease)
        for host in [*self._elsewhere.values(), *([] if self._here is None else [self._here])]:
            self._drop_host(host)

    def _give_back(self, lease: Lease, *, is_proven: bool, has_failed: bool) -> str:
        request = GiveBack(key=lease.key, number=lease.number, is_proven=is_proven, has_failed=has_failed)
        answer, _ = self._drop(lease).ask(request)
        assert isinstance(answer, LeaseAnswer)
        return answer.words

    def _drop(self, lease: Lease) -> "_Host":
        _, host = self._held.pop(lease.key)
        if lease.distant is None:
            os.close(lease.stdin)
            os.close(lease.stdout)
        return host

    def _drop_host(self, host: "_Host") -> None:
        host.close()
        if host is self._here:
            self._here = None
        else:
            self._elsewhere = {machine: each for machine, each in self._elsewhere.items() if each is not host}

    # The machine of a child

    def _host_of(self, key: ChildKey) -> tuple["_Host", bool]:
        is_new = self._here is None
        here = self._here = self._here or self._connected_here()
        if self._placement is None:
            return here, is_new
        assert here.machine is not None
        lost: Machine | None = None
        while True:
            machine = self._placement.ask(AskMachine(key=key, asking=here.machine, lost=lost))
            if machine == here.machine:
                return here, is_new
            if machine in self._elsewhere:
                return self._elsewhere[machine], False
            try:
                host = self._elsewhere[machine] = _Host(connect(machine, self._placement.key), machine)
            except OSError as error:
                _log.warning("%s: its machine %s cannot be reached: %r", key, machine, error)
                lost = machine
            else:
                return host, True

    def _connected_here(self) -> "_Host":
        host, key_bytes = None, b""
        if self._placement is not None:
            host = _named_by_spark() or self._placement.host_here()
            key_bytes = self._placement.key
        greet = Greet(
            lives_with=_lives_with(),
            shipped_to=tuple(map(str, shipped_to())),
            host=host,
            key=key_bytes,
        )
        channel, greeting = connect_here(self._application, greet)
        return _Host(channel, greeting.machine)


class _Host:
    """A connection to a host process. Mutable. ``machine`` is how other machines reach it, if any do."""

    def __init__(self, channel: MessageChannel, machine: Machine | None) -> None:
        self.machine = machine
        self._channel = channel
        self._lost: OSError | None = None

    def ask(self, request: Request, wait_seconds: float = 0.0) -> tuple[Answer, list[int]]:
        """Ask, and wait this much longer for the answer. OSError, also in later calls: the host is gone."""
        if self._lost is not None:
            raise self._lost
        try:
            if not self._channel.is_local:
                self._channel.set_timeout(wait_seconds + _ANSWER_SECONDS)
            send(self._channel, request)
            return receive_answer(self._channel)
        except OSError as error:
            self._lost = error
            self._channel.close()  # an answer that comes late would be taken for the next one
            raise

    def leased(self, lease: Lease, descriptors: list[int]) -> Lease:
        if not self._channel.is_local:
            return replace(lease, distant=DistantPipes(partial(self._exchange, lease)))
        stdin, stdout = descriptors
        return replace(lease, stdin=stdin, stdout=stdout)

    def _exchange(
        self,
        lease: Lease,
        data: bytes,
        wait_seconds: float,
        waits_for_room: bool,  # noqa: FBT001
    ) -> tuple[int | None, bytes | None]:
        request = PipeExchange(
            key=lease.key,
            number=lease.number,
            data=data,
            wait_seconds=wait_seconds,
            waits_for_room=waits_for_room,
        )
        try:
            answer, _ = self.ask(request, wait_seconds)
        except OSError:  # as if the child had ended here: giving the lease back says why
            return None, None
        return (answer.written, answer.data) if isinstance(answer, Exchanged) else (None, None)

    def close(self) -> None:
        self._channel.close()


def _named_by_spark() -> str | None:
    """The address that Spark uses on this machine, if one was set that tells it from others."""
    named = os.environ.get("SPARK_LOCAL_IP")
    return None if named in {"", "0.0.0.0", "::"} else named  # noqa: S104 - not to listen there


def _lives_with() -> int:
    """The process that lives as long as this machine takes part in the application.

    A Python worker of Spark is the child of a daemon (or of the executor), which lives as long as the
    executor does; the worker itself is ended after a minute without work.
    """
    parent = os.getppid()
    return parent if "pyspark.worker" in sys.modules and parent > 1 else os.getpid()
