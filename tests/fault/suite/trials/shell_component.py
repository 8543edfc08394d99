"""The shell bolt of a trial: hands each tuple on; fails one, or dies of it, as its record says."""

import os
import sys

from tests.fault.suite.trials.failing import Failing
from tests.fault.suite.trials.plan import ALL, Place, TrialRecord
from tests.support.storm.shell_components.protocol import ack, emit, hello, read, send

_DIED = 9


def main() -> None:
    failing = Failing(log=sys.argv[1], folder=sys.argv[2])
    hello()
    while True:
        message = read()
        if isinstance(message, list):
            continue
        if message["task"] == -1:
            send({"command": "sync"})
            continue
        text, word = message["tuple"]
        record = TrialRecord.decode(text)
        if word != ALL and failing.fails(record, Place.CHILD):
            os._exit(_DIED)
        if word != ALL and failing.fails(record, Place.SHELL):
            send({"command": "fail", "id": message["id"]})
            continue
        emit(message, [text, word])
        ack(message)


if __name__ == "__main__":
    main()
