import logging

import kazoo.exceptions
import pytest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Auth

from kinesis_spout.errors import StoreError, StoreUnavailable
from kinesis_spout.zookeeper import Tls, ZooKeeperSession
from kinesis_spout.zookeeper.errors import translated


def test_no_secret_is_shown() -> None:
    tls = Tls(key="key.pem", key_password="hunter2")
    session = ZooKeeperSession("localhost:2181", digest="billing:s3cret", tls=tls)
    assert "s3cret" not in repr(session)
    assert "hunter2" not in repr(session) + repr(tls)


def test_kazoos_debug_lines_with_credentials_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = ZooKeeperSession("localhost:2181", digest="billing:s3cret")
    with caplog.at_level(logging.DEBUG, logger=session.client.logger.name):
        # What kazoo itself logs when it authenticates.
        session.client.logger.debug("Sending request(xid=%s): %s", -4, Auth(0, "digest", "billing:s3cret"))
        session.client.logger.info("Connecting")
    assert caplog.messages == ["Connecting"]


def test_the_tls_options_reach_the_client() -> None:
    session = ZooKeeperSession(
        "localhost:2281",
        tls=Tls(ca="ca.pem", certificate="cert.pem", key="key.pem", key_password="hunter2"),
    )
    client = session.client
    assert client.use_ssl
    assert client.check_hostname
    assert client.verify_certs
    assert (client.ca, client.certfile, client.keyfile) == ("ca.pem", "cert.pem", "key.pem")


@pytest.mark.parametrize(
    "error",
    [
        kazoo.exceptions.ConnectionLoss(),
        kazoo.exceptions.ConnectionClosedError(),
        kazoo.exceptions.SessionExpiredError(),
        kazoo.exceptions.SessionMovedError(),
        kazoo.exceptions.OperationTimeoutError(),
        KazooTimeoutError(),
    ],
    ids=repr,
)
def test_what_may_pass_is_retriable(error: Exception) -> None:
    assert isinstance(translated(error), StoreUnavailable)


@pytest.mark.parametrize(
    "error", [kazoo.exceptions.NoAuthError(), kazoo.exceptions.AuthFailedError()], ids=repr
)
def test_refused_credentials_are_not_retriable(error: Exception) -> None:
    meaning = translated(error)
    assert "credentials" in str(meaning)
    assert not meaning.retriable


def test_an_unexpected_error_is_named() -> None:
    meaning = translated(kazoo.exceptions.MarshallingError())
    assert type(meaning) is StoreError
    assert "MarshallingError" in str(meaning)


def test_a_closed_session_is_unavailable_at_once() -> None:
    session = ZooKeeperSession("localhost:2181", session_timeout_seconds=1000)
    session.close()
    with pytest.raises(StoreUnavailable, match="closed by this process"):
        session.await_connection(session.deadline())
