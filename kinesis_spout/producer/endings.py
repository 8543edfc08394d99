"""How the records of a producer end: counted once, confirmed to the spool where that is due, told to who asks."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.producer.inbox import Inbox
from kinesis_spout.producer.ticket import Ticket
from kinesis_spout.producer.works import Ended, tickets_of

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

    from kinesis_spout.kinesis.write.put_records import Puttable


class Endings:
    """Mutable; for one thread at a time. A record that has ended already is passed over.

    Args:
        inbox: which counts, and has room again.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._ended = Ended()

    def take(self) -> Ended:
        """Give what ended since it was asked the last time."""
        ended = self._ended
        if ended.count:
            self._ended = Ended()
        return ended

    def sent(self, taken: "Sequence[tuple[Puttable, Result]]") -> None:
        """End what is on the stream, each with its answer."""
        ended = self._ended
        sent = size_bytes = 0
        for put, answer in taken:
            if isinstance(put, Ticket):
                if put.outcome is None:
                    sent += 1
                    size_bytes += put.size_bytes
                    put.outcome = answer
                    if put.callbacks is not None:
                        ended.to_tell.append(put)
                    if put.number_in_spool is not None:
                        ended.to_confirm.append(put.number_in_spool)
                continue
            for sub_sequence_number, ticket in enumerate(tickets_of(put)):
                if ticket.outcome is None:
                    sent += 1
                    size_bytes += ticket.size_bytes
                    ticket.sub_sequence_number = sub_sequence_number
                    ticket.outcome = answer
                    if ticket.callbacks is not None:
                        ended.to_tell.append(ticket)
                    if ticket.number_in_spool is not None:
                        ended.to_confirm.append(ticket.number_in_spool)
        ended.count += sent
        self._inbox.ended(sent=sent, size_bytes=size_bytes)

    def failed(
        self,
        tickets: Iterable[Ticket],
        error: KinesisSpoutError,
        *,
        is_over: bool,
        dead_lettered: bool = False,
    ) -> None:
        """End records with an error.

        ``is_over`` says whether to send them again would change nothing: then the spool forgets them.
        """
        left = [ticket for ticket in tickets if not ticket.done()]
        for ticket in left:
            self._note(ticket, error, is_over=is_over)
        if left:
            self._ended.failures.append((len(left), error))
        self._ended.count += len(left)
        self._inbox.ended(
            failed=len(left),
            dead_lettered=len(left) * dead_lettered,
            size_bytes=sum(each.size_bytes for each in left),
        )

    def dropped(self, tickets: Sequence[Ticket], error: KinesisSpoutError) -> None:
        """End records that make room for newer ones. None of them has ended."""
        for ticket in tickets:
            self._note(ticket, error, is_over=True)
        self._ended.count += len(tickets)
        self._inbox.ended(dropped=len(tickets), size_bytes=sum(each.size_bytes for each in tickets))

    def _note(self, ticket: Ticket, outcome: KinesisSpoutError, *, is_over: bool) -> None:
        if ticket.end(outcome):
            self._ended.to_tell.append(ticket)
        if is_over and ticket.number_in_spool is not None:
            self._ended.to_confirm.append(ticket.number_in_spool)
