import tempfile
from pathlib import Path

from kinesis_spout.spark.sessions import socket_settings


def test_sockets_are_where_temporary_files_are() -> None:
    assert socket_settings(Path("/tmp/short")) == {}


def test_sockets_go_elsewhere_if_the_name_is_too_long_for_them() -> None:
    settings = socket_settings(Path("/tmp") / ("long" * 20))
    assert list(settings) == ["spark.python.unix.domain.socket.dir"]
    assert len(settings["spark.python.unix.domain.socket.dir"]) <= 60
    with tempfile.TemporaryFile(dir=settings["spark.python.unix.domain.socket.dir"]):
        pass
