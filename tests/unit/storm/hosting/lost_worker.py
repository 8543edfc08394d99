"""A worker that gives its child two tuples and is killed before it takes an answer."""

import sys
import time

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.storm.hosting.component_reports import ComponentReports
from kinesis_spout.storm.hosting.processes.hosted_children import HostedChildren
from kinesis_spout.storm.hosting.talk import ShellComponent, Talk
from kinesis_spout.storm.multilang.conversation import BOLT
from kinesis_spout.storm.multilang.frames import CODECS
from kinesis_spout.storm.multilang.protocol import TupleIn
from tests.support.storm.shell_topology import KEY, shell_bolt


def give_and_wait(application: str) -> None:
    clock = SystemClock()
    component = ShellComponent(
        key=KEY,
        # With other settings than the next worker's, the next one would have the child replaced.
        child=shell_bolt("counts")._shell.child_settings(),
        children=HostedChildren(application),
        table=BOLT,
        codec=CODECS["json"],
        timeout_seconds=20,
        conf={},
        context={},
        reports=ComponentReports("worker", clock, lambda *_: None, lambda _: None),
        clock=clock,
    )
    talk = component.lease(20)
    assert isinstance(talk, Talk)
    talk.shake_hands()
    for number, word in enumerate(("a", "b"), talk.lease.number * 10**12 + 1):
        talk.say(TupleIn(id=str(number), component="words", task=1, values=[word]))
    talk.pipes.push()
    sys.stdout.write("given\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    give_and_wait(sys.argv[1])
