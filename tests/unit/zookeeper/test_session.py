import logging
import ssl
import sys
from dataclasses import replace

import kazoo.exceptions
import pytest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Auth
from kazoo.security import Permissions

from kinesis_spout.model.errors import MissingExtra, StoreError, StoreUnavailable
from kinesis_spout.zookeeper import Login, NodeAcls, Tls, ZooKeeperSession
from kinesis_spout.zookeeper.credentials import CREATOR, OPEN
from kinesis_spout.zookeeper.kazoo_connection import KazooHandler, KazooLog
from kinesis_spout.zookeeper.kazoo_errors import translated
from tests.fault.suite.consumers.prober import free_address

LOGIN = Login(user="billing", password="s3cret")


def test_no_secret_is_shown() -> None:
    tls = Tls(key="key.pem", key_password="hunter2")
    session = ZooKeeperSession("localhost:2181", login=LOGIN, tls=tls)
    assert "s3cret" not in repr(session)
    assert "hunter2" not in repr(session) + repr(tls)


def test_kazoos_debug_lines_with_credentials_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = ZooKeeperSession("localhost:2181", login=LOGIN)
    with caplog.at_level(logging.DEBUG, logger=session.client.logger.name):
        # What kazoo itself logs when it authenticates.
        session.client.logger.debug("Sending request(xid=%s): %s", -4, Auth(0, "digest", "billing:s3cret"))
        session.client.logger.info("Connecting")
    assert caplog.messages == ["Connecting"]


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


# --- who we are, and whom we trust


def test_sasl_without_its_package_names_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    with pytest.raises(MissingExtra, match=r'pip install "kinesis-spout\[sasl\]"'):
        ZooKeeperSession("localhost:2181", login=replace(LOGIN, is_sasl=True))
    ZooKeeperSession("localhost:2181", login=LOGIN)


@pytest.mark.parametrize(
    ("tls", "mode", "names"),
    [
        (Tls(), ssl.CERT_REQUIRED, True),
        (Tls(check_host_name=False), ssl.CERT_REQUIRED, False),
        (Tls(verify=False), ssl.CERT_NONE, False),
    ],
)
def test_how_much_of_a_certificate_is_checked_is_as_it_is_said(
    tls: Tls, mode: ssl.VerifyMode, *, names: bool
) -> None:
    context = tls.context()
    assert (context.verify_mode, context.check_hostname) == (mode, names)


def test_nodes_are_open_unless_we_are_somebody() -> None:
    certificate = Tls(certificate="me.pem")
    assert ZooKeeperSession("localhost:2181").acls == OPEN
    assert ZooKeeperSession("localhost:2181", tls=Tls()).acls == OPEN
    assert ZooKeeperSession("localhost:2181", login=LOGIN).acls == CREATOR
    assert ZooKeeperSession("localhost:2181", tls=certificate).acls == CREATOR
    assert ZooKeeperSession("localhost:2181", tls=certificate, acls=OPEN).acls == OPEN


def test_an_acl_is_not_shown_because_it_may_have_the_hash_of_a_password() -> None:
    assert "aGFzaA" not in repr(NodeAcls.of([("digest", "billing:aGFzaA==", "cdrwa")]))


def test_permissions_are_letters_and_repeated_ones_count_once() -> None:
    (acl,) = NodeAcls.of([("world", "anyone", "rr")]).own
    assert acl.perms == Permissions.READ
    (acl,) = NodeAcls.of([("world", "anyone", "cdrwa")]).own
    assert acl.perms == Permissions.ALL


def test_a_thread_of_kazoo_that_gives_up_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    def give_up() -> None:
        raise kazoo.exceptions.SessionClosedRequireSaslError

    KazooHandler(None).spawn(give_up).join()
    assert capfd.readouterr().err == ""


def test_a_server_that_wants_other_credentials_ends_the_start_when_kazoo_logs_it() -> None:
    session = ZooKeeperSession("localhost:1", login=LOGIN)
    refusal = kazoo.exceptions.SessionClosedRequireSaslError()
    session.client.logger.error("Unhandled exception in connection loop", exc_info=refusal)
    with pytest.raises(StoreError, match="does not accept the credentials of 'billing'") as refused:
        session.start()
    assert not refused.value.retriable


def test_a_start_that_takes_long_says_once_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    address = free_address()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            session = ZooKeeperSession(address, login=LOGIN)
            with pytest.raises(StoreUnavailable, match=f"no ZooKeeper answered at {address} within 2.2 s"):
                session.start(2.2)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith(f"waiting for ZooKeeper at {address}: no answer yet after 2 s, 2.2 s at most")
    assert "refused" in line
    assert "s3cret" not in caplog.text


def test_attempts_to_connect_that_fail_alike_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = KazooLog(logging.getLogger("some.kazoo"), lambda _: None, lambda: False)
    for words in ("refused", "refused", "reset", "refused"):
        log.warning("Connection dropped: %s", OSError(words))
    log.info("Zookeeper connection established, state: %s", "CONNECTED")
    log.warning("Connection dropped: %s", OSError("refused"))
    assert [line.rpartition(" ")[2] for line in caplog.messages] == ["refused", "reset", "refused", "refused"]
