import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kinesis_spout.storm import ShellBolt
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings
from kinesis_spout.storm.hosting.processes.children import Lease, NotYet
from kinesis_spout.storm.hosting.processes.host_socket import folder_of
from kinesis_spout.storm.hosting.processes.hosted_children import HostedChildren
from kinesis_spout.storm.running.program import SHELL_HOST
from tests.support.storm.shell_topology import ENVIRONMENT, KEY, command, shell_bolt, topology, words
from tests.support.waiting import wait_until

SETTINGS = ChildSettings(command=tuple(command("counts")), environment=ENVIRONMENT)


@pytest.fixture
def application() -> Iterator[str]:
    """An application of the test's own; its host process is ended."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    for pid in host_processes(name):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not host_processes(name), "the host process has ended")


def host_processes(application: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line, status = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            except OSError:
                continue
            if b"host_process" in line and application.encode() in line and ") Z " not in status:
                found.append(int(entry.name))
    return found


def lost_worker(application: str) -> "subprocess.Popen[bytes]":
    script = Path(__file__).parent / "lost_worker.py"
    return subprocess.Popen(
        [sys.executable, str(script), application], stdout=subprocess.PIPE, env=os.environ | ENVIRONMENT
    )


def counting() -> ShellBolt:
    return shell_bolt("counts", fields=("word", "seen", "pid"))


def lease(children: HostedChildren, wait_seconds: float = 20) -> Lease:
    found = children.lease(KEY, SETTINGS, wait_seconds)
    assert isinstance(found, Lease)
    return found


def test_another_worker_goes_on_with_the_same_child(application: str) -> None:
    seen = []
    for _ in range(2):
        with topology(counting(), conf={SHELL_HOST: application}) as local:
            result = local.run(words("a", "b"))
            seen += [list(values) for values in result.emitted["shell"]["default"]]
    assert [number for _, number, _ in seen] == [1, 2, 3, 4]
    assert len({pid for _, _, pid in seen}) == 1


def test_workers_that_race_start_one_host_process(application: str) -> None:
    racing = [HostedChildren(application) for _ in range(4)]
    settings = [ChildSettings(command=("cat",))] * 4
    keys = [type(KEY)(topology="words", run="", component="shell", task=number) for number in range(4)]
    threads = [
        threading.Thread(target=children.lease, args=(key, each, 30))
        for children, key, each in zip(racing, keys, settings, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A child that it is about to start has its command line for a moment.
    wait_until(lambda: len(host_processes(application)) == 1, "there is one host process")
    for children in racing:
        children.close()


def test_a_leased_child_is_not_leased_to_another_worker(application: str) -> None:
    one, other = HostedChildren(application), HostedChildren(application)
    held = lease(one)
    one.greeted(held)
    refused = other.lease(KEY, SETTINGS, 0)
    assert isinstance(refused, NotYet)
    assert "serves another Python worker" in refused.reason
    one.release(held, is_proven=True)
    again = lease(other)
    assert (again.pid, again.is_fresh, again.is_disturbed) == (held.pid, False, False)
    assert again.number > held.number
    one.close()
    other.close()


def test_the_child_of_a_worker_that_is_lost_goes_on_with_the_next(application: str) -> None:
    worker = lost_worker(application)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"given\n"
    worker.kill()
    worker.communicate()
    with topology(counting(), conf={SHELL_HOST: application}) as local:
        result = local.run(words("c"))
    # It had counted the two of the worker that was lost; what it said of them was dropped.
    assert [list(values)[:2] for values in result.emitted["shell"]["default"]] == [["c", 3]]
    assert result.acked == words("c")


def test_a_child_that_died_is_said_with_its_last_words_and_replaced(application: str) -> None:
    with topology(shell_bolt("dies"), conf={SHELL_HOST: application}) as local:
        result = local.run(words("a", "poison"))
        again = local.run(words("b"))
    assert "exit code 3" in result.reasons[0]
    assert "cannot stand poison" in result.reasons[0]
    assert again.acked == words("b")


def test_a_host_process_that_was_killed_is_replaced(application: str) -> None:
    with topology(counting(), conf={SHELL_HOST: application}) as local:
        local.run(words("a"))
        (pid,) = host_processes(application)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not host_processes(application), "the host process is gone")
        result = local.run(words("b"))
    assert result.acked == words("b")


def test_it_ends_with_the_last_process_that_it_lives_with(application: str) -> None:
    worker = lost_worker(application)
    assert worker.stdout is not None
    worker.stdout.readline()
    assert host_processes(application)
    worker.kill()
    worker.communicate()
    wait_until(lambda: not host_processes(application), "the host process has ended")
    folder = folder_of(application)
    assert not list(folder.iterdir())
    folder.rmdir()


def test_its_folder_is_private_and_another_users_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        tempfile.TemporaryDirectory() as short
    ):  # a longer path would be left for /tmp, as no socket's fits there
        monkeypatch.setattr("tempfile.tempdir", short)
        folder = folder_of("app-1")
        assert folder.is_relative_to(short)
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o755)
        with pytest.raises(PermissionError, match="app-1"):
            folder_of("app-1")
