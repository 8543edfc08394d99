"""The threads of a process in which those of other tests, of a server or of a client run as well."""

import threading

import pytest


def named(prefix: str = "kinesis-") -> set[threading.Thread]:
    """Give the threads that run, of those whose name begins so."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(prefix)}


def forbid_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread be started by this one; others start theirs as before."""
    here, start = threading.current_thread(), threading.Thread.start

    def start_elsewhere(thread: threading.Thread) -> None:
        assert threading.current_thread() is not here, f"{thread.name} was started"
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_elsewhere)
