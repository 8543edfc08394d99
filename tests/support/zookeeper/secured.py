"""One real ZooKeeper with users (SASL), a port for TLS, and certificates; made when the first test asks for it."""

import ipaddress
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from examples.demo.processes.endpoint import free_ports
from kinesis_spout.settings.sources import checked, from_keywords
from kinesis_spout.settings.table.connection import PLACE
from kinesis_spout.settings.zookeeper import zookeeper_settings
from kinesis_spout.zookeeper import ZooKeeperSettings
from kinesis_spout.zookeeper.java_server import JavaServer
from tests.support.waiting import STARTING_SECONDS
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS

PASSWORD = "s3cret-of-billing"
"""Of the user ``billing``."""
OTHER_PASSWORD = "s3cret-of-shipping"
KEY_PASSWORD = "s3cret-of-the-key"

_MORE_CONFIGURATION = """\
secureClientPortAddress=127.0.0.1
secureClientPort={tls_port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
ssl.keyStore.location={directory}/server.pem
ssl.trustStore.location={directory}/ca.pem
ssl.clientAuth=want
"""
_USERS = """\
Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_billing="{billing}" user_shipping="{shipping}";
}};
"""


@dataclass(frozen=True)
class SecuredZooKeeper:
    plain: str
    tls: str
    directory: Path

    def access(self, kind: str) -> dict[str, Any]:
        """The settings with which the user ``billing``, or the certificate of that name, gets in."""
        user = {"zookeeper_user": "billing", "zookeeper_password": PASSWORD}
        sasl = user | {"zookeeper_auth": "sasl-digest"}
        tls = {"zookeeper": self.tls, "zookeeper_tls": True, "zookeeper_tls_ca": self.file("ca")}
        certificate = {
            "zookeeper_tls_certificate": self.file("billing"),
            "zookeeper_tls_key": self.file("billing-key"),
            "zookeeper_tls_key_password": KEY_PASSWORD,
        }
        ways: dict[str, dict[str, Any]] = {
            "digest": {"zookeeper": self.plain, **user},
            "sasl": {"zookeeper": self.plain, **sasl},
            "tls and sasl": tls | sasl,
            "certificate": tls | certificate,
            "tls": tls,
            "nobody": {"zookeeper": self.plain},
        }
        return ways[kind]

    def settings(self, root: str, **access: Any) -> ZooKeeperSettings:
        place = {"zookeeper_root": root, "session_timeout_seconds": SESSION_TIMEOUT_SECONDS}
        return zookeeper_settings("billing", checked(from_keywords(place | access, PLACE), PLACE))

    def file(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")


class _Server(JavaServer):
    def __init__(self, directory: Path, tls_port: int) -> None:
        super().__init__(directory, tick_millis=200)
        self._more = _MORE_CONFIGURATION.format(tls_port=tls_port, directory=directory)

    def _write_configuration(self, port: int) -> Path:
        config = super()._write_configuration(port)
        config.write_text(config.read_text() + self._more)
        return config


@pytest.fixture(scope="session")
def secured_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    directory = tmp_path_factory.mktemp("secured-zookeeper")
    _make_certificates(directory)
    users = directory / "users.conf"
    users.write_text(_USERS.format(billing=PASSWORD, shipping=OTHER_PASSWORD))
    port, tls_port = free_ports(2)
    server = _Server(directory, tls_port)
    guards_end, our_end = os.pipe()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.auth.login.config={users}")
        guard = server.launch(port, guards_end)
    os.close(guards_end)
    try:
        deadline = time.monotonic() + STARTING_SECONDS
        while not server.serves(port):
            assert guard.poll() is None, server.log_tail()
            assert time.monotonic() < deadline, server.log_tail()
            time.sleep(0.05)
        yield SecuredZooKeeper(f"127.0.0.1:{port}", f"127.0.0.1:{tls_port}", directory)
    finally:
        os.close(our_end)
        guard.wait()


def _make_certificates(directory: Path) -> None:
    """Make a CA, what it signed for 127.0.0.1 and for the client ``billing``, and a CA that signed nothing."""
    ca_key, other_key, server_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(4))
    open_ = serialization.NoEncryption()
    closed = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
    ca = _certificate("ca", ca_key, "ca", ca_key)
    server = _certificate("server", server_key, "ca", ca_key)
    files = {
        "ca": ca,
        "other-ca": _certificate("other-ca", other_key, "other-ca", other_key),
        "server": _key(server_key, open_) + server,
        "billing": _certificate("billing", client_key, "ca", ca_key),
        "billing-key": _key(client_key, closed),
    }
    for name, pem in files.items():
        (directory / f"{name}.pem").write_bytes(pem)


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, signer: str, signers_key: ec.EllipticCurvePrivateKey
) -> bytes:
    now, loopback = datetime.now(UTC), ipaddress.ip_address("127.0.0.1")
    made = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(signer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=key is signers_key, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(loopback)]), critical=False)
        .sign(signers_key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
