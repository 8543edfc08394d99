"""A child stays on its machine, and serves workers of others there. A machine has temporary files of its own."""

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.processes.keyed_connections import connect
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.storm import ShellBolt
from kinesis_spout.storm.hosting.processes import host_process
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings
from kinesis_spout.storm.hosting.processes.host_process import HostServer
from kinesis_spout.storm.hosting.processes.host_socket import (
    AskLease,
    Greet,
    Greeting,
    receive_answer,
    send,
)
from kinesis_spout.storm.hosting.processes.placement import Placement
from kinesis_spout.storm.local import LocalTopology
from kinesis_spout.storm.running.program import SHELL_HOST, SHELL_PLACEMENT
from tests.support.storm.shell_topology import KEY, shell_bolt, topology, words
from tests.support.waiting import wait_until
from tests.unit.storm.hosting.test_host_process import host_processes


@dataclass
class Machines:
    application: str
    placement: Placement
    monkeypatch: pytest.MonkeyPatch
    folders: dict[str, str] = field(default_factory=dict)

    def go_to(self, address: str) -> None:
        """Have what connects from now on be on another machine."""
        if address not in self.folders:
            self.folders[address] = tempfile.mkdtemp(prefix="ks-", dir="/tmp")
        self.monkeypatch.setenv("SPARK_LOCAL_IP", address)
        self.monkeypatch.setattr("tempfile.tempdir", self.folders[address])

    @contextmanager
    def on(self, address: str, bolt: ShellBolt) -> Iterator[LocalTopology]:
        self.go_to(address)
        conf = {SHELL_HOST: self.application, SHELL_PLACEMENT: {"shell": self.placement.address}}
        with topology(bolt, conf=conf) as local:
            yield local

    def lose(self, address: str) -> None:
        lost = [
            pid
            for pid in host_processes(self.application)
            if self.folders[address].encode() in _command_of(pid)
        ]
        for pid in lost:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not set(lost) & set(host_processes(self.application)), "the machine is lost")


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    placement = Placement("127.0.0.1", "127.0.0.1")
    made = Machines(f"test-{os.urandom(6).hex()}", placement, monkeypatch)
    yield made
    placement.close()
    for address in made.folders:
        made.lose(address)
        shutil.rmtree(made.folders[address])


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return b""


def counting() -> ShellBolt:
    return shell_bolt("counts", fields=("word", "seen", "pid"))


def emitted(local: LocalTopology, *every: str) -> list[list[Any]]:
    result = local.run(words(*every))
    assert not result.reasons
    return [list(values) for values in result.emitted["shell"]["default"]]


def test_a_child_counts_for_workers_of_every_machine_until_its_own_is_lost(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        machines.on("127.0.0.3", counting()) as one,
        machines.on("127.0.0.4", counting()) as other,
    ):
        machines.go_to("127.0.0.3")
        seen = emitted(one, "a", "b")
        machines.go_to("127.0.0.4")
        # More than a pipe has room for, and a frame that is longer than what is sent at a time.
        seen += emitted(other, *"cd" * 200, "e" * 3_000_000)
        seen += emitted(one, "f")
        seen += emitted(other, "g")
        assert [number for _, number, _ in seen] == list(range(1, 406))
        assert len({pid for *_, pid in seen}) == 1
        assert len(host_processes(machines.application)) == 2

        machines.lose("127.0.0.3")
        with caplog.at_level(logging.WARNING, "kinesis_spout.storm.hosting.processes.placement"):
            again = emitted(other, "h", "i")
    assert [number for _, number, _ in again] == [1, 2]
    assert any(
        "127.0.0.3" in said and "a new process starts on 127.0.0.4" in said for said in caplog.messages
    )


def test_a_child_of_another_machine_that_dies_is_said_with_its_last_words_and_replaced_there(
    machines: Machines,
) -> None:
    with machines.on("127.0.0.3", shell_bolt("dies")) as one:
        assert emitted(one, "a") == [["A"]]
    with machines.on("127.0.0.4", shell_bolt("dies")) as other:
        result = other.run(words("b", "poison"))
        assert emitted(other, "c") == [["C"]]
    assert "exit code 3" in result.reasons[0]
    assert "cannot stand poison" in result.reasons[0]


def test_a_machine_that_is_lost_amid_tuples_fails_only_the_one_that_is_alone_when_the_next_is_lost(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    bolt = shell_bolt("kills_its_owner")
    # An address that tells no machine from another: it is known by the one that faces the driver.
    with machines.on("0.0.0.0", bolt) as one:
        assert emitted(one, "a") == [["A"]]
    with machines.on("127.0.0.4", bolt) as other:
        result = other.run(words("poison", "b"))
        assert emitted(other, "c") == [["C"]]
    assert [values for values, _ in result.failed] == words("poison")
    (reason,) = result.reasons
    assert "its output has ended; the host process of shell components, which owned it, is gone" in reason
    assert any("127.0.0.1:" in said and "starts on 127.0.0.4" in said for said in caplog.messages)


def test_without_an_executor_it_stays_as_long_as_a_worker_of_another_machine_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_process, "LINGER_SECONDS", 0.6)
    are_gone, looked = threading.Event(), threading.Semaphore(0)

    def has_executors(_: HostServer) -> bool:
        if are_gone.is_set():
            looked.release()
        return not are_gone.is_set()

    monkeypatch.setattr(HostServer, "_has_executors", has_executors)
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as worker:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        serving = threading.Thread(target=HostServer(listening).serve)
        worker.connect(str(tmp_path / "s"))
        channel = MessageChannel(worker)
        send(channel, Greet(lives_with=os.getpid(), shipped_to=(), host="127.0.0.1", key=b"key"))
        serving.start()
        greeting, _ = receive_answer(channel)
        assert isinstance(greeting, Greeting)
        assert greeting.machine is not None
        with connect(greeting.machine, b"key") as distant:
            send(distant, AskLease(key=KEY, settings=ChildSettings(command=("cat",)), wait_seconds=1.0))
            receive_answer(distant)
            are_gone.set()
            for _ in range(4):  # longer than without
                assert looked.acquire(timeout=60)
            assert serving.is_alive()
        serving.join(timeout=60)
        assert not serving.is_alive()


def test_a_child_runs_in_what_the_job_brought_to_its_machine_whoever_asks(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each executor has a folder of its own for what a job brings, also two on one machine."""
    seen = []
    for executor, address in enumerate(("127.0.0.3", "127.0.0.3", "127.0.0.4")):
        brought = tmp_path / str(executor) / "resources"
        brought.mkdir(parents=True)
        monkeypatch.chdir(brought.parent)
        bolt = shell_bolt("context", fields=("conf", "context", "folder", "colour"), resources="resources")
        with machines.on(address, bolt) as local:
            ((conf, _, folder, _),) = emitted(local, "a")
            seen.append(folder)
            # What the component is told of the topology has no key.
            assert not [name for name in conf if "placement" in name]
            assert repr(machines.placement.address.key) not in repr(conf)
    assert seen == [str(tmp_path / "0/resources")] * 3
