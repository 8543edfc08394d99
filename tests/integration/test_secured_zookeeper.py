"""Progress in a real ZooKeeper with users, TLS and ACLs: every door gets in, nobody else does, nothing leaks."""

import json
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from typer.testing import CliRunner

from kinesis_spout.cli.app import app
from kinesis_spout.consumer.open_ports import zookeeper_settings
from kinesis_spout.model.errors import InvalidConfig, StoreError, StoreUnavailable
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.recipes.leader import stand_for
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Login, ZooKeeperBackend, ZooKeeperSession
from shard_state import Checkpoint, Position
from tests.support.core.shards import everywhere, shards_named
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.support.zookeeper.proxy import SASL, ZooKeeperProxy
from tests.support.zookeeper.secured import KEY_PASSWORD, OTHER_PASSWORD, PASSWORD, SecuredZooKeeper
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS

pytestmark = pytest.mark.zookeeper

SHARD = "shardId-000000000000"
WAYS_IN = [
    "digest",
    *(
        pytest.param(way, marks=pytest.mark.second_environment)
        for way in ("sasl", "tls and sasl", "certificate")
    ),
]
SECRETS = (PASSWORD, OTHER_PASSWORD, KEY_PASSWORD, "wr0ng-password")

SHIPPING = {"zookeeper_user": "shipping", "zookeeper_password": OTHER_PASSWORD}

Access = dict[str, Any]


def connected(zookeeper: SecuredZooKeeper, root: str, access: Access) -> ZooKeeperBackend:
    return zookeeper.settings(root, **access).connect("orders", None)


def begin(zookeeper: SecuredZooKeeper, root: str, access: Access) -> None:
    """Let the application begin."""
    with connected(zookeeper, root, access) as backend:
        backend.store.open(1.0, everywhere(Position.trim_horizon()), shards_named(SHARD))


class Everything:
    """A consumer, the leader of its group, an operator's wish and an office: every kind of node that is made."""

    def __init__(self, zookeeper: SecuredZooKeeper, root: str, access: Access) -> None:
        self._election = stand_for(
            "nightly-bill", zookeeper_root=root, session_timeout_seconds=SESSION_TIMEOUT_SECONDS, **access
        )
        self._backend = connected(zookeeper, root, access)
        self.client: KazooClient = self._backend.session.client
        self._root = root

    def __enter__(self) -> Self:
        backend = self._backend
        backend.store.open(1.0, everywhere(Position.trim_horizon()), shards_named(SHARD))
        backend.coordinator.join()
        assert backend.coordinator.acquire(SHARD, Checkpoint(start=Position.trim_horizon())) is not None
        backend.coordinator.show_pause("for the test")
        backend.group.drain("somebody")
        backend.group.take_part(lambda: None)
        wait_until(backend.group.leads, "it leads its group")
        elected = self._election.campaign()
        assert elected is not None
        self._election.occupy(elected)
        return self

    def __exit__(self, *_: object) -> None:
        self._election.close()
        self._backend.close()

    def nodes(self, path: str | None = None) -> Iterator[str]:
        path = path or f"/{self._root}"
        yield path
        for child in self.client.get_children(path):
            yield from self.nodes(f"{path}/{child}")


# --- what is made


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_server_says_of_itself_what_it_is_by_every_way_in(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, way: str
) -> None:
    with connected(secured_zookeeper, fresh_root, secured_zookeeper.access(way)) as backend:
        assert "Mode: standalone" in backend.session.said_of_itself()


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_node_belongs_to_who_made_it(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, way: str
) -> None:
    scheme, name = {"digest": ("digest", "billing:"), "certificate": ("x509", "CN=billing")}.get(
        way, ("sasl", "billing")
    )
    with Everything(secured_zookeeper, fresh_root, secured_zookeeper.access(way)) as everything:
        kinds = set()
        for path in everything.nodes():
            acls = {(acl.id.scheme, acl.id.id): acl.perms for acl in everything.client.get_acls(path)[0]}
            if path in {f"/{fresh_root}", f"/{fresh_root}/~leaders"}:
                assert acls.pop(("world", "anyone")) == 1 | 4, "others may look, and make places of their own"
            ((owner, permissions),) = acls.items()
            assert (owner[0], permissions) == (scheme, 31), path
            assert owner[1].startswith(name)
            kinds.add(path.removeprefix(f"/{fresh_root}/billing/orders/").partition("/")[0])
    assert kinds >= {"shards", "members", "owners", "paused", "leader", "assignment", "draining"}


def test_an_acl_that_is_given_is_that_of_every_node(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str
) -> None:
    access = secured_zookeeper.access("sasl") | {"zookeeper_acl": "sasl:billing:cdrw,sasl:shipping:r"}
    with Everything(secured_zookeeper, fresh_root, access) as everything:
        for path in everything.nodes():
            acls = [(acl.id.scheme, acl.id.id, acl.perms) for acl in everything.client.get_acls(path)[0]]
            assert acls == [("sasl", "billing", 15), ("sasl", "shipping", 1)], path
        with connected(secured_zookeeper, fresh_root, access | SHIPPING) as reader:
            assert reader.store.load().keys() == {SHARD}
            with pytest.raises(StoreError, match="does not let this client"):
                reader.coordinator.join()


@pytest.mark.parametrize(
    ("way", "acl"), [("nobody", None), ("nobody", "open"), ("sasl", "open"), ("tls", None)]
)
def test_without_a_user_or_when_it_is_said_the_nodes_are_open(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, way: str, acl: str | None
) -> None:
    access = secured_zookeeper.access(way) | {"zookeeper_acl": acl}
    with Everything(secured_zookeeper, fresh_root, access) as everything:
        assert all(everything.client.get_acls(path)[0] == OPEN_ACL_UNSAFE for path in everything.nodes())


def test_a_root_that_was_made_by_others_needs_no_permission_to_make_one(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str
) -> None:
    office = f"/{fresh_root}"
    client = KazooClient(secured_zookeeper.plain, auth_data=[("digest", "admin:hush")])
    client.start()
    client.create(office, acl=CREATOR_ALL_ACL)
    client.create(f"{office}/root", acl=OPEN_ACL_UNSAFE)
    client.stop()
    client.close()
    access = secured_zookeeper.access("sasl")
    begin(secured_zookeeper, "root", access | {"zookeeper": f"{secured_zookeeper.plain}{office}"})


# --- who gets in


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("stranger", [{}, SHIPPING], ids=["nobody", "shipping"])
def test_a_second_user_can_neither_read_nor_write_and_is_told_why(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, way: str, stranger: Access
) -> None:
    access = secured_zookeeper.access(way)
    begin(secured_zookeeper, fresh_root, access)
    sasl = {"zookeeper_auth": "sasl-digest"} if stranger and way != "digest" else {}
    with connected(
        secured_zookeeper, fresh_root, {"zookeeper": secured_zookeeper.plain, **stranger, **sasl}
    ) as other:
        for use in (
            other.store.load,
            other.coordinator.join,
            other.store.forget,
            lambda: other.coordinator.acquire(SHARD, Checkpoint(start=Position.trim_horizon())),
        ):
            with pytest.raises(StoreError, match="`zookeeper_user`, `zookeeper_password`") as refused:
                use()
            assert not refused.value.retriable
    with connected(secured_zookeeper, fresh_root, access) as backend:
        assert backend.store.read_application() is not None


def test_another_user_has_a_place_of_its_own_beside_it(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str
) -> None:
    begin(secured_zookeeper, fresh_root, secured_zookeeper.access("sasl"))
    shipping = secured_zookeeper.access("sasl") | SHIPPING
    with (
        secured_zookeeper.settings(fresh_root, **shipping).connect("returns", None) as refused,
        pytest.raises(StoreError, match="does not let this client"),
    ):
        refused.coordinator.join()
    stand_for("count", zookeeper_root=fresh_root, **shipping).close()
    stand_for("bill", zookeeper_root=fresh_root, **secured_zookeeper.access("sasl")).close()


@pytest.mark.parametrize("way", ["sasl", "tls and sasl"])
def test_a_wrong_password_is_refused_with_what_to_do(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, way: str
) -> None:
    access = secured_zookeeper.access(way) | {"zookeeper_password": "wr0ng-password"}
    with pytest.raises(
        StoreError, match="does not accept the credentials of 'billing': check `zookeeper_user`"
    ) as refused:
        connected(secured_zookeeper, fresh_root, access)
    assert not refused.value.retriable


@pytest.mark.parametrize(
    ("session_timeout_seconds", "start_timeout_seconds", "expected"),
    [
        (1.0, 15.0, "does not accept the credentials of 'billing'"),
        # On a busy machine the server may have dropped the connection by then, and so said what it thinks.
        (SESSION_TIMEOUT_SECONDS, 3.0, "(has not answered to|does not accept) the credentials of 'billing'"),
    ],
)
def test_a_server_that_has_no_sasl_is_named_as_what_is_the_matter(
    zookeeper_server: EmbeddedZooKeeper,
    session_timeout_seconds: float,
    start_timeout_seconds: float,
    expected: str,
) -> None:
    session = ZooKeeperSession(
        zookeeper_server.connect_string,
        session_timeout_seconds=session_timeout_seconds,
        login=Login(user="billing", password=PASSWORD, is_sasl=True),
    )
    with pytest.raises(StoreError, match=expected) as refused:
        session.start(start_timeout_seconds)
    assert "section Server of their JAAS file" in str(refused.value)


@pytest.mark.parametrize(
    ("host", "ca", "expected", "enough"),
    [
        (
            "127.0.0.1",
            "other-ca",
            "not accepted: (self-signed|unable to get local issuer) certificate",
            "none",
        ),
        ("localhost", "ca", "not accepted: Hostname mismatch", "ca"),
    ],
)
def test_a_server_that_cannot_be_trusted_is_refused_with_what_to_do(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, *, host: str, ca: str, expected: str, enough: str
) -> None:
    address = secured_zookeeper.tls.replace("127.0.0.1", host)
    access: Access = {"zookeeper": address, "zookeeper_tls": True}
    with pytest.raises(StoreError, match=expected) as refused:
        connected(secured_zookeeper, fresh_root, access | {"zookeeper_tls_ca": secured_zookeeper.file(ca)})
    assert "`zookeeper_tls_ca`" in str(refused.value)
    assert not refused.value.retriable
    if enough == "ca":
        access["zookeeper_tls_ca"] = secured_zookeeper.file(ca)
    begin(secured_zookeeper, fresh_root, access | {"zookeeper_tls_verify": enough})


@pytest.mark.parametrize("way", ["tls", "nobody"])
def test_the_wrong_port_is_what_an_unfit_connection_asks_about(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, way: str
) -> None:
    wrong = {"tls": secured_zookeeper.plain, "nobody": secured_zookeeper.tls}[way]
    settings = secured_zookeeper.settings(fresh_root, **secured_zookeeper.access(way) | {"zookeeper": wrong})
    session = settings.session(None)

    def give_up_after_one_attempt() -> None:
        wait_until(lambda: session._connection.trouble is not None, "an attempt to connect has failed")
        session._connection.settled.set()

    impatience = threading.Thread(target=give_up_after_one_attempt)
    impatience.start()
    with pytest.raises(StoreUnavailable, match="port for TLS" if way == "tls" else "zookeeper_tls=True"):
        session.start(timeout_seconds=DEADLINE_SECONDS)
    impatience.join()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"zookeeper_tls_ca": "/no/such.pem"},
            "zookeeper_tls_ca: expected a readable PEM file",
        ),
        ({"zookeeper_tls_ca": __file__}, "zookeeper_tls_ca: expected a PEM file with certificates"),
        ({"zookeeper_tls_key": "/no/such.pem"}, "zookeeper_tls_key: expected a readable PEM file"),
        (
            {"zookeeper_tls_key_password": "wr0ng-password"},
            "encrypted with `zookeeper_tls_key_password` or not at all",
        ),
        (
            {"zookeeper_tls_key_password": None},
            "zookeeper_tls_certificate: expected a PEM file with a certificate and its key",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_before_anything_is_asked(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str, changed: Any, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        connected(secured_zookeeper, fresh_root, secured_zookeeper.access("certificate") | changed)


def test_a_missing_chroot_is_an_error(secured_zookeeper: SecuredZooKeeper, fresh_root: str) -> None:
    access = secured_zookeeper.access("nobody") | {"zookeeper": f"{secured_zookeeper.plain}/nowhere"}
    with pytest.raises(StoreError, match="expected the chroot /nowhere to exist"):
        connected(secured_zookeeper, fresh_root, access)


def test_a_connection_that_is_cut_while_the_password_is_checked_is_made_again(
    secured_zookeeper: SecuredZooKeeper, fresh_root: str
) -> None:
    with ZooKeeperProxy(secured_zookeeper.plain) as proxy:
        access = secured_zookeeper.access("sasl") | {"zookeeper": proxy.connect_string}
        with connected(secured_zookeeper, fresh_root, access) as backend:
            first = backend.session.session_id
            proxy.lose_next_request(SASL)
            proxy.close_door()
            proxy.open_door()
            wait_until(lambda: proxy.requests_lost == 1, "the request is lost")
            wait_until(lambda: backend.session.session_id not in {None, first}, "a new session")
            wait_until(lambda: answers(backend), "it is used again")


def answers(backend: ZooKeeperBackend) -> bool:
    try:
        backend.store.read_application()
    except StoreUnavailable:
        return False
    return True


# --- the doors, and what they tell


@pytest.fixture
def given(
    secured_zookeeper: SecuredZooKeeper, moto_server: KinesisEndpoint, fresh_root: str, tmp_path: Path
) -> dict[str, Any]:
    """The settings of an application, with every secret that ZooKeeper may want, and ten records to read."""
    stream = moto_server.create_stream(shards=2)
    moto_server.client().put_records(
        StreamName=stream,
        Records=[{"Data": str(number).encode(), "PartitionKey": str(number)} for number in range(10)],
    )
    certificate = secured_zookeeper.access("certificate")
    return {
        "stream": stream,
        "app": "billing",
        "region": moto_server.settings.region,
        "endpoint_url": moto_server.settings.endpoint_url,
        "aws_access_key_id": moto_server.settings.aws_access_key_id,
        "aws_secret_access_key": moto_server.settings.aws_secret_access_key,
        "initial_position": "trim_horizon",
        "dead_letters": str(tmp_path / "dead"),
        "zookeeper_root": fresh_root,
        **(certificate | secured_zookeeper.access("tls and sasl")),
    }


@pytest.mark.endpoint
def test_the_doors_get_in_and_no_secret_gets_out(
    secured_zookeeper: SecuredZooKeeper, given: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    config = SpoutConfig.of(**given)
    shown = [repr(config), repr(zookeeper_settings(config))]
    with RecordSpout(config=config, scheme="text").open() as spout:
        assert {next_acked(spout) for _ in range(10)} == {str(number) for number in range(10)}

    shown.append(command(given, "shards", "--json"))
    assert all(shard["checkpoint"] for shard in json.loads(shown[-1])["shards"])
    shown.append(command(given, "checkpoints", "show", "--json"))
    assert SHARD in shown[-1]
    shown.append(command(given | {"zookeeper_password": "wr0ng-password"}, "shards", exit_code=4))
    assert "--set zookeeper_password" in shown[-1]

    other_ca = {"zookeeper_tls_ca": secured_zookeeper.file("other-ca")}
    for wrong in ({"zookeeper_password": "wr0ng-password"}, other_ca):
        with pytest.raises(StoreError) as error:
            RecordSpout(config=SpoutConfig.of(**given | wrong)).activate()
        shown += traceback.format_exception(error.value)

    begin(secured_zookeeper, f"{config.zookeeper_root}-digest", secured_zookeeper.access("digest"))
    with zookeeper_settings(config).connect("orders", None) as backend:
        client = backend.session.client
        nodes = [f"{path} {client.get(path)}" for path in walk(client, f"/{config.zookeeper_root}")]
    assert any(SHARD in node for node in nodes)

    assert "kinesis_spout.zookeeper.kazoo" in {record.name for record in caplog.records}
    for secret in SECRETS:
        assert secret not in "\n".join(shown + nodes)
        assert secret not in caplog.text


def next_acked(spout: RecordSpout) -> Any:
    message_id, values = next(iter(spout))
    assert spout.ack(message_id)
    return values


def command(given: dict[str, Any], *arguments: str, exit_code: int = 0) -> str:
    variables = {f"KINESIS_SPOUT_{name.upper()}": str(value) for name, value in given.items()}
    result = CliRunner().invoke(app, [*arguments], env=variables)
    assert result.exit_code == exit_code, result.output
    return result.output


def walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for child in client.get_children(path):
        yield from walk(client, f"{path}/{child}")
