"""The directory decides the port, as long as nobody else has it."""

import socket
from pathlib import Path

from kinesis_spout.zookeeper.java_server import is_free, port_for


def test_the_same_directory_leads_to_the_same_port(tmp_path: Path) -> None:
    assert port_for(tmp_path) == port_for(tmp_path)


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    port = port_for(tmp_path)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
        assert port_for(tmp_path) != port


def test_the_ports_are_below_those_for_outgoing_connections(tmp_path: Path) -> None:
    ports = [port_for(tmp_path / str(number)) for number in range(50)]
    assert min(ports) >= 20_000
    assert max(ports) < 32_768
    assert len(set(ports)) > 1
