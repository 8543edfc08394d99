"""Spouts: programs that are asked for tuples, and told what became of them.

class Numbers(Spout):
    def next_tuple(self):
        self.emit([next(self.numbers)], id=str(uuid4()))

Numbers().run()
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from kinesis_spout.storm.multilang.channel import HostGone
from kinesis_spout.storm.multilang.component import Component, GiveUp, values_of
from kinesis_spout.storm.multilang.messages import (
    Ack,
    Activate,
    Deactivate,
    Emit,
    Fail,
    Message,
    Next,
    NotOfTheProtocol,
    Sync,
)


class Spout(Component):
    """A spout. The host calls one method at a time; what a method raises is reported, and the spout goes on."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit the next tuple, or none if there is none now. It must not block: acks wait meanwhile."""

    def ack(self, message_id: Any) -> None:
        """Take note that the tuple emitted under this id is done, with all that came from it."""

    def fail(self, message_id: Any) -> None:
        """Take note that the tuple emitted under this id failed or timed out; emit it again, or give it up."""

    def activate(self) -> None:
        """Take note that tuples will be asked for. Old hosts never say so."""

    def deactivate(self) -> None:
        """Take note that no tuples will be asked for until ``activate``."""

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
            if isinstance(error, GiveUp):
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
