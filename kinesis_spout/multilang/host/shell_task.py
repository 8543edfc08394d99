"""One task of a shell bolt: has a child to hand its tuples to, in each micro-batch.

It leases the child for a micro-batch, from its first tuple to ``finish``. When the child fails, its tuples fail,
and the next one comes after a back-off. What is said to it, and by it, is ``leased_child``'s.
"""

from kinesis_spout.clock import Clock
from kinesis_spout.multilang.conversation import BOLT
from kinesis_spout.multilang.frames import CODECS
from kinesis_spout.multilang.host.leased_child import LOOK_SECONDS, LeasedChild, ShellTaskSettings
from kinesis_spout.multilang.host.processes.children import Keeper, Lease, NotYet
from kinesis_spout.multilang.host.remarks import ComponentFailed, Remarks
from kinesis_spout.multilang.host.talk import ChildFailed, Talk
from kinesis_spout.topology.components.collector import OutputCollector
from kinesis_spout.topology.components.tuples import Tuple


class ShellTask:
    """See the module. Mutable; one thread's."""

    def __init__(
        self,
        settings: ShellTaskSettings,
        keeper: Keeper,
        collector: OutputCollector,
        remarks: Remarks,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._collector = collector
        self._remarks = remarks
        self._clock = clock
        self._child: LeasedChild | None = None
        self._last_failure = ""

    def hand_over(self, tup: Tuple) -> None:
        """Hand a tuple over; wait while the child has enough. Does what the child says meanwhile.

        Raises:
            InvalidConfig: the child cannot be started.
            UnsendableValue: one of its values cannot be sent.
            ComponentFailed: there was no child for it before it was overdue.
        """
        child = self._child or self._begin(tup)
        try:
            child.hand_over(tup)
        except ChildFailed as error:
            self._condemn(child, error)

    def tick(self) -> None:
        """Tell the child that time has passed; ``finish`` waits for what it says to that.

        Raises:
            InvalidConfig: the child cannot be started.
            ComponentFailed: there is no child for it now.
        """
        child = self._child or self._begin(None)
        try:
            child.send_tick()
        except ChildFailed as error:
            self._condemn(child, error)

    def finish(self) -> None:
        """Wait until nothing is pending, or what is has no use any more; and give the child back."""
        child = self._child
        if child is None:
            return
        try:
            child.drain()
        except ChildFailed as error:
            self._condemn(child, error)
            return
        self._child = None
        self._keeper.release(self._settings.key, child.talk.lease, is_proven=child.is_proven)

    def _begin(self, tup: Tuple | None) -> LeasedChild:
        """Get a child: for a tuple until that is overdue; without one there must be one soon."""
        while True:
            is_overdue = tup is not None and self._collector.is_overdue(tup)
            lease = self._keeper.lease(
                self._settings.key, self._settings.child, 0 if is_overdue else LOOK_SECONDS
            )
            if isinstance(lease, NotYet):
                if is_overdue or tup is None:
                    raise ComponentFailed(f"{lease.reason}{self._last_failure}")
                continue
            child = self._child = self._leased(lease)
            try:
                if lease.is_fresh:
                    child.talk.shake_hands(dict(self._settings.conf), dict(self._settings.context))
                    self._keeper.greeted(self._settings.key, lease)
                elif lease.is_disturbed:
                    self._remarks.count("disturbed")
                    child.probe()
            except ChildFailed as error:
                failed = self._condemn(child, error)
                if lease.is_fresh:
                    raise failed from error
                continue
            return child

    def _leased(self, lease: Lease) -> LeasedChild:
        talk = Talk(
            lease,
            table=BOLT,
            codec=CODECS[self._settings.serializer],
            remarks=self._remarks,
            timeout_seconds=self._settings.timeout_seconds,
            clock=self._clock,
            component=self._settings.key.component,
        )
        return LeasedChild(talk, self._settings, self._collector, self._remarks, self._clock)

    def _condemn(self, child: LeasedChild, error: ChildFailed) -> ComponentFailed:
        """End the child, and fail what it had."""
        self._child = None
        words = self._keeper.condemn(self._settings.key, child.talk.lease, is_proven=child.is_proven)
        failed = ComponentFailed(f"{self._settings.key} (pid {self._remarks.pid}) {error}; {words}")
        self._last_failure = f"; the last time: {failed}"
        self._remarks.count("restarts")
        self._collector.report_error(failed)
        for tup in child.taken_back():
            self._collector.fail(tup, failed)
        return failed
