"""Bolts, programs that are given tuples; and spouts, programs that are asked for tuples and learn their outcome.

class Split(BasicBolt):
    def process(self, tup):
        for word in tup.values[0].split():
            self.emit([word])

Split().run()
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.storm.multilang.channel import HostGone
from kinesis_spout.storm.multilang.component import CannotContinue, Component, values_of
from kinesis_spout.storm.multilang.protocol import (
    Ack,
    Activate,
    Deactivate,
    Emit,
    Fail,
    Message,
    Next,
    NotOfTheProtocol,
    Sync,
    TupleIn,
)


class Bolt(Component):
    """A bolt that acks, fails and anchors itself.

    Every tuple must be acked or failed, now or later; one that is neither fails after the host's message
    time-out. One whose ``process`` raises is failed, and the bolt continues.
    """

    _current: str | None = None

    @abstractmethod
    def process(self, tup: TupleIn) -> None:
        """Process a tuple. An error is reported, and fails the tuple unless that is acked or failed."""

    def tick(self) -> None:
        """Take note that ``topology.tick.tuple.freq.secs`` have passed. The tick itself is acked."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str | None = None,
        anchors: Iterable[TupleIn | str] = (),
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> tuple[int, ...]:
        """Emit a tuple.

        Args:
            values: what the codec carries; JSON carries no bytes.
            stream: the default one unless given.
            anchors: the tuples that it comes from, or their ids. When it fails, they fail.
            task: the task to send it to directly.
            need_task_ids: wait for the answer of the host. Tuples that come meanwhile are processed later.

        Returns:
            The tasks that it went to, if they are needed.

        Raises:
            UnsendableValue: a value has no form in the serializer. Nothing was sent.
        """
        ids = [anchor.id if isinstance(anchor, TupleIn) else anchor for anchor in anchors]
        return self._emit(
            Emit(values=values_of(values), stream=stream, anchors=ids, task=task, need_task_ids=need_task_ids)
        )

    def ack(self, tup: TupleIn | str) -> None:
        """Say that a tuple, or the one of this id, is done. Once for each."""
        self._settle(Ack(id=tup.id if isinstance(tup, TupleIn) else tup))

    def fail(self, tup: TupleIn | str) -> None:
        """Say that a tuple, or the one of this id, failed, and with it what its spout emitted."""
        self._settle(Fail(id=tup.id if isinstance(tup, TupleIn) else tup))

    def _settle(self, message: Ack | Fail) -> None:
        self._send(message)
        if message.id == self._current:
            self._current = None

    def _answer(self, message: Message) -> None:
        if type(message) is not TupleIn:
            raise NotOfTheProtocol(f"expected a tuple for a bolt, got {type(message).__name__}")
        self._current = message.id
        try:
            if message.is_tick:
                self.tick()
                self.ack(message)
            else:
                self._process(message)
        except (HostGone, NotOfTheProtocol):
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the bolt goes on
            self._report(error)
        finally:
            self._say_logged()

    def _process(self, tup: TupleIn) -> None:
        returned: object = self.process(tup)
        if returned is not None:
            refuse_unfinished(returned)

    def _report(self, error: Exception) -> None:
        self._tell(error)
        if self._current is not None:
            self.fail(self._current)
        if isinstance(error, CannotContinue):
            self._open_channel.flush()
            raise error


class BasicBolt(Bolt):
    """A bolt whose emits are anchored to the tuple in ``process``, which is acked when ``process`` returns."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str | None = None,
        anchors: Iterable[TupleIn | str] | None = None,
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> tuple[int, ...]:
        """Emit a tuple, anchored to the one that is processed now; ``anchors=()`` emits it unanchored.

        Arguments, result and errors are those of ``Bolt.emit``.
        """
        if anchors is None:
            anchors = () if self._current is None else (self._current,)
        return super().emit(values, stream=stream, anchors=anchors, task=task, need_task_ids=need_task_ids)

    def _process(self, tup: TupleIn) -> None:
        super()._process(tup)
        if self._current is not None:
            self.ack(tup)


class Spout(Component):
    """A spout. The host calls one method at a time; an error is reported, and the spout continues."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit the next tuple, or none if there is none now. It must not block: acks wait meanwhile."""

    def ack(self, message_id: Any) -> None:
        """Take note that the tuple emitted under this id is done, with all that came from it."""

    def fail(self, message_id: Any) -> None:
        """Take note that the tuple emitted under this id failed or timed out; emit it again, or give it up."""

    def activate(self) -> None:
        """Take note that the host will ask for tuples. Old hosts never say so."""

    def deactivate(self) -> None:
        """Take note that the host will ask for no tuples until ``activate``."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        id: Any = None,  # noqa: A002 - Storm's word
        stream: str | None = None,
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> tuple[int, ...]:
        """Emit a tuple.

        Args:
            values: what the codec carries; JSON carries no bytes.
            id: what ``ack`` and ``fail`` will be given. None: neither is called for this tuple.
            stream: the default one unless given.
            task: the task to send it to directly.
            need_task_ids: wait for the answer of the host.

        Returns:
            The tasks that it went to, if they are needed.

        Raises:
            UnsendableValue: a value has no form in the serializer. Nothing was sent.
        """
        return self._emit(
            Emit(values=values_of(values), id=id, stream=stream, task=task, need_task_ids=need_task_ids)
        )

    def _answer(self, message: Message) -> None:
        try:
            self._obey(message)
        except (HostGone, NotOfTheProtocol):
            raise
        except Exception as error:
            self._tell(error)
            if isinstance(error, CannotContinue):
                self._send(Sync())
                self._open_channel.flush()
                raise
        self._say_logged()
        self._send(Sync())

    def _obey(self, message: Message) -> None:
        match message:
            case Next():
                self.next_tuple()
            case Ack(id=message_id):
                self.ack(message_id)
            case Fail(id=message_id):
                self.fail(message_id)
            case Activate():
                self.activate()
            case Deactivate():
                self.deactivate()
            case _:
                raise NotOfTheProtocol(f"expected a command for a spout, got {type(message).__name__}")
