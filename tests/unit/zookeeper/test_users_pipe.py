"""Each side of the pipe learns that the other is gone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinesis_spout.zookeeper.users_pipe import UsersPipe


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


@contextmanager
def begun(pipe: UsersPipe) -> Iterator[int]:
    guards_end = pipe.begin()
    try:
        yield guards_end
    finally:
        os.close(guards_end)
        pipe.let_go()


def test_without_a_guard_nobody_joins(path: Path) -> None:
    pipe = UsersPipe(path)
    assert not pipe.join()
    with begun(pipe):
        pass
    assert path.exists()
    assert not pipe.join()
    assert not pipe.used


def test_a_user_sees_the_guard_go_and_another_come(path: Path) -> None:
    first, second = UsersPipe(path), UsersPipe(path)
    seen = []
    with begun(first):
        assert second.join()
        seen.append(second.guarded)
    seen.append(second.guarded)
    with begun(first):
        seen.append(second.guarded)
    second.let_go()
    assert seen == [True, False, True]


def test_the_guard_reads_the_end_when_the_last_user_is_gone(path: Path) -> None:
    first, second = UsersPipe(path), UsersPipe(path)
    with begun(first) as guards_end:
        assert second.join()
        first.let_go()
        assert second.used
        os.set_blocking(guards_end, False)
        with pytest.raises(BlockingIOError):
            os.read(guards_end, 1)
        second.let_go()
        assert os.read(guards_end, 1) == b""
        assert not second.used


def test_joining_twice_is_joining_once(path: Path) -> None:
    first, second = UsersPipe(path), UsersPipe(path)
    with begun(first):
        assert second.join()
        assert second.join()
        first.let_go()
        second.let_go()
        assert not first.used


def test_who_holds_no_end_sees_no_guard(path: Path) -> None:
    first, second = UsersPipe(path), UsersPipe(path)
    with begun(first):
        assert not second.guarded


def test_nobody_uses_a_directory_that_was_removed(path: Path) -> None:
    assert not UsersPipe(path).used
