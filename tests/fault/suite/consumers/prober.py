"""Asks every consumer each second whether it is alive, as an orchestrator does that would start it again if not.

It restarts nobody: that would be one more fault. What an orchestrator would have done is in the probes, for the
judge. It does not ask a process that is stopped, was told to end, or has not begun to consume.
"""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final, Self

from examples.demo.processes.endpoint import free_ports
from tests.fault.suite.consumers.supervised import SupervisedConsumer
from tests.fault.suite.judgement.evidence import Probe

PERIOD_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 1.0


class Prober(AbstractContextManager["Prober"]):
    """Mutable; its probes may be read once it is closed."""

    def __init__(self, consumers: Iterable[SupervisedConsumer]) -> None:
        self._consumers = list(consumers)
        self.probes: list[Probe] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(len(self._consumers)) as askers:
            while not self._over.wait(PERIOD_SECONDS):
                found = askers.map(self._probe, self._consumers)
                self.probes += [probe for probe in found if probe is not None]

    def _probe(self, consumer: SupervisedConsumer) -> Probe | None:
        if not consumer.may_be_asked:
            return None
        life, begun = consumer.life, time.time()
        status, said = ask(consumer.http, "/livez")
        if consumer.life != life or not consumer.may_be_asked:
            return None  # it was ended or stopped meanwhile
        return Probe(life=life, time=begun, status=status, said=said)


def ask(address: str, path: str) -> tuple[int | None, str]:
    """Give status and text of an answer; no status without one within a second."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return None, str(error)


def free_address() -> str:
    """Give an address of this machine at which nobody listens, and no outgoing connection begins."""
    return f"127.0.0.1:{free_ports(1)[0]}"
