"""Settings are checked where they are made, and every refusal says what would have been right."""

import copy
import math
import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.pretty import pretty_repr

from kinesis_spout.consumer.open_ports import zookeeper_settings
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.documentation import options
from kinesis_spout.settings.grammar.zookeeper_address import acl_entries, embedded_directory
from kinesis_spout.settings.rules import SECRETS
from kinesis_spout.zookeeper import Login, NodeAcls, Tls, ZooKeeperSettings
from shard_state import Position
from tests.support.core.shards import everywhere

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
REQUIRED: dict[str, Any] = {"stream": "orders", "app": "billing"}


def config(**settings: Any) -> SpoutConfig:
    return SpoutConfig.of(**(REQUIRED | settings))


def refusal(**settings: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        config(**settings)
    return str(caught.value)


def test_stream_and_app_are_all_that_must_be_said() -> None:
    made = config()
    assert (made.retry_limit, made.order, made.max_buffered_bytes) == (3, "unordered", 256 * 1024 * 1024)


@pytest.mark.parametrize("missing", ["stream", "app"])
def test_a_missing_required_setting_says_where_it_can_be_set(missing: str) -> None:
    given = {name: value for name, value in REQUIRED.items() if name != missing}
    with pytest.raises(InvalidConfig, match=rf"^{missing} is required: .*KINESIS_SPOUT_{missing.upper()}"):
        SpoutConfig.of(**given)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("stream", "or ders", "a stream name"),
        ("stream", "orders\n", "a stream name"),
        ("stream", "x" * 129, "a stream name"),
        ("stream", "arn:aws:sqs:eu-west-1:123456789012:orders", "a stream ARN"),
        ("stream", ".", "no '.' or '..'"),
        ("app", "bil/ling", "1 to 128 of"),
        ("app", "..", "no '.' or '..'"),
        ("app", None, "1 to 128 of"),
        ("zookeeper", "embeded", "'embedded'"),
        ("zookeeper", "zk1", "host:port"),
        ("zookeeper", "zk1:2181/a,zk2:2181", "host:port,host:port[/chroot]"),
        ("zookeeper", "zk1:2181/", "host:port,host:port[/chroot]"),
        ("zookeeper", "zk1:2181/a//b", "host:port,host:port[/chroot]"),
        ("zookeeper", "zk1:2181/a/../b", "no '.' or '..'"),
        ("zookeeper", "embedded:", "'embedded:<directory>'"),
        ("zookeeper_root", "/spouts", "give zookeeper a chroot"),
        ("zookeeper_root", "a/b", "give zookeeper a chroot"),
        ("zookeeper_root", "zookeeper", "another name"),
        ("session_timeout_seconds", 0.5, "float >= 1 and <= 120"),
        ("session_timeout_seconds", 121, "float >= 1 and <= 120"),
        ("retry_limit", -1, "int >= 0, or none"),
        ("retry_limit", True, "int >= 0, or none"),
        ("retry_limit", "3", "int >= 0, or none"),
        ("retry_limit", 1.5, "int >= 0, or none"),
        ("retry_backoff_seconds", -1, "float >= 0"),
        ("retry_backoff_seconds", math.nan, "float >= 0"),
        ("retry_backoff_cap_seconds", math.inf, "a finite number"),
        ("retry_backoff_cap_seconds", 0.5, "at least retry_backoff_seconds, which is 1.0"),
        ("retry_backoff_multiplier", 0.5, "float >= 1"),
        ("retry_jitter", 1.1, "float >= 0 and <= 1"),
        ("order", "keys", "one of unordered, key, shard"),
        ("message_timeout_seconds", 0, "float > 0, or none"),
        ("max_pending", 0, "int >= 1"),
        ("max_buffered_bytes", 1024, "int >= 10,485,760"),
        ("max_records_per_fetch", 10_001, "int >= 1 and <= 10,000"),
        ("poll_interval_seconds", 0.1, "float >= 0.2"),
        ("fail_on_data_loss", "false", "true or false"),
        ("region", "", "a region such as eu-central-1, or none"),
        ("endpoint_url", "localhost:4566", "http://"),
        ("role_arn", "admin", "an IAM role ARN"),
        ("role_session_name", "spout", "none without role_arn"),
        ("sts_endpoint", "http://localhost:4566", "none without role_arn"),
        ("initial_position", "newest", "latest, trim_horizon"),
        ("initial_position", "2026-01-31T12:00:00", "a time with its zone"),
        ("initial_position", 1_700_000_000_000, "this looks like milliseconds"),
        ("initial_position", "-1", "seconds since the epoch"),
        ("dead_letters", "", "kinesis://stream, or none"),
        ("dead_letters", "file://var/dead", "three slashes"),
        ("dead_letters", "file:/var/dead", "two slashes"),
        ("dead_letters", "kinesis://or/ders", "kinesis://<stream name>"),
        ("dead_letters", "kinesis://orders", "another stream"),
        ("dead_letters", "s3://[bucket", "a URL that can be parsed"),
        ("zookeeper", "embedded-zk:2181/a/../b", "no '.' or '..'"),
    ],
)
def test_a_refusal_names_the_setting_the_value_and_what_is_allowed(
    name: str, value: Any, allowed: str
) -> None:
    message = refusal(**{name: value})
    assert message.startswith(f"{name}: expected ")
    assert allowed in message
    shown = repr(value).strip("'")
    assert message.endswith((f"got {shown}", f"got '{shown}'", f"got '{shown}.0'"))


def test_a_refusal_is_an_error_of_this_package_and_a_value_error() -> None:
    with pytest.raises(ValueError, match="retry_limit") as caught:
        config(retry_limit=-1)
    assert isinstance(caught.value, KinesisSpoutError)


def test_an_unknown_setting_is_answered_with_the_nearest_ones() -> None:
    assert "did you mean retry_limit" in refusal(retry_limt=1)


@pytest.mark.parametrize("name", ["RETRY_LIMIT", "kinesis_spout_retry_limit", "_retry_limit"])
def test_a_setting_that_is_only_spelled_otherwise_is_answered_with_its_name(name: str) -> None:
    assert refusal(**{name: 1}).endswith("did you mean retry_limit?")


def test_an_unknown_setting_near_nothing_is_answered_with_the_command_that_lists_all() -> None:
    assert refusal(xyzzy=1).endswith("expected one of those that `kinesis-spout options` lists")


def test_the_value_of_an_unknown_setting_is_not_shown_for_it_may_be_a_secret() -> None:
    assert "hunter2" not in refusal(aws_secret_acess_key="hunter2")


def test_secrets_show_in_no_repr() -> None:
    made = config(
        aws_access_key_id="AKIA1",
        aws_secret_access_key="hunter2",
        aws_session_token="t0ken",
        role_arn="arn:aws:iam::123456789012:role/reader",
        role_external_id="x-1",
        proxy_url="http://me:hush0@proxy:3128",
        zookeeper="zk:2181",
        zookeeper_user="billing",
        zookeeper_password="hush1",
        zookeeper_acl="digest:billing:hush2:cdrwa",
        zookeeper_tls=True,
        zookeeper_tls_certificate="me.pem",
        zookeeper_tls_key_password="hush3",
    )
    for text in (repr(made), str(made), pretty_repr(made), f"{made}"):
        assert not any(secret in text for secret in ("AKIA1", "hunter2", "t0ken", "x-1", "hush"))
        assert text.count("***") == len(SECRETS)


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_secrets_show_in_no_refusal(name: str) -> None:
    message = refusal(**{name: ["hunter2"]})
    assert name in message
    assert "hunter2" not in message
    assert "'***'" in message


def test_a_proxy_that_is_none_is_refused_without_showing_it() -> None:
    assert refusal(proxy_url="me:hush@proxy") == (
        "proxy_url: expected http://host:port or https://host:port, with user:password@ before the host if need "
        "be, or none, got '***'"
    )


def test_a_lone_session_token_is_refused_without_showing_it() -> None:
    assert refusal(aws_session_token="t0ken") == (
        "aws_session_token: expected none without aws_access_key_id, got '***'"
    )


def test_a_lone_external_id_is_refused_without_showing_it() -> None:
    assert refusal(role_external_id="x-1") == (
        "role_external_id: expected none without role_arn: it would have no effect, got '***'"
    )


@pytest.mark.parametrize("given", ["aws_access_key_id", "aws_secret_access_key"])
def test_key_and_secret_go_together(given: str) -> None:
    assert "go together" in refusal(**{given: "hunter2"})


@pytest.mark.parametrize("name", ["endpoint_url", "dead_letters"])
def test_a_password_in_a_url_is_refused_without_showing_it(name: str) -> None:
    message = refusal(**{name: "https://me:hunter2@example.org/x"})
    assert "without a password" in message
    assert "hunter2" not in message
    assert "https://***@example.org/x" in message


@pytest.mark.parametrize(
    "rest", ["b/x?endpoint_override=http://127.0.0.1:9000", "b/x?a=http://me:hunter2@c", "b://", "b"]
)
@pytest.mark.parametrize("scheme", ["s3://", ""])
def test_a_password_is_not_shown_when_a_url_has_another_in_it(scheme: str, rest: str) -> None:
    message = refusal(endpoint_url=f"{scheme}me:hunter2@{rest}")
    assert "hunter2" not in message
    assert f"got '{scheme}***@" in message


def test_a_container_before_the_at_sign_of_a_hadoop_url_is_no_password() -> None:
    url = "abfss://dead@account.dfs.core.windows.net/letters"
    assert config(dead_letters=url).dead_letters_url == url


def test_an_arn_gives_the_name_and_the_region() -> None:
    made = config(stream=ARN)
    assert (made.stream_name, made.stream_arn, made.stream_region) == ("orders", ARN, "eu-west-1")


def test_a_name_has_no_arn_and_leaves_the_region_to_what_was_set() -> None:
    assert (config().stream_name, config().stream_arn, config().stream_region) == ("orders", None, None)
    assert config(region="us-east-1").stream_region == "us-east-1"


def test_an_endpoint_of_aws_says_the_region_and_must_not_contradict_it() -> None:
    endpoint = "https://kinesis.eu-central-1.amazonaws.com"
    assert config(endpoint_url=endpoint).stream_region == "eu-central-1"
    assert config(endpoint_url="http://localhost:4566").stream_region is None
    message = refusal(endpoint_url=endpoint, region="us-east-1")
    assert message == f"endpoint_url: expected one in region 'us-east-1', got '{endpoint}'"


def test_a_region_that_contradicts_the_arn_is_refused() -> None:
    message = refusal(stream=ARN, region="us-east-1")
    assert message == "region: expected the region of the stream's ARN, 'eu-west-1', got 'us-east-1'"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", Position.latest()),
        ("LATEST", Position.latest()),
        ("trim_horizon", Position.trim_horizon()),
        ("earliest", Position.trim_horizon()),
        ("2026-01-31T12:00:00Z", Position.at_timestamp(1769860800)),
        ("2026-01-31T14:00:00+02:00", Position.at_timestamp(1769860800)),
        ("1769860800.5", Position.at_timestamp(1769860800.5)),
        (1769860800, Position.at_timestamp(1769860800)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), Position.at_timestamp(1769860800)),
        (datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))), Position.at_timestamp(1769860800)),
    ],
)
def test_the_initial_position_is_understood_in_all_its_forms(text: Any, position: Position) -> None:
    assert config(initial_position=text).start == everywhere(position)


@pytest.mark.parametrize(
    ("text", "hosts", "directory"),
    [
        ("embedded", None, None),
        ("embedded:/var/zk", None, "/var/zk"),
        ("zk1:2181", "zk1:2181", None),
        ("zk1:2181,[::1]:2182/apps/x", "zk1:2181,[::1]:2182/apps/x", None),
    ],
)
def test_zookeeper_is_embedded_or_an_ensemble(text: str, hosts: str | None, directory: str | None) -> None:
    made = config(zookeeper=text)
    assert (made.zookeeper_hosts, embedded_directory(made.zookeeper)) == (hosts, directory)


ENSEMBLE = {"zookeeper": "zk1:2181"}
USER = {"zookeeper_user": "billing", "zookeeper_password": "hunter2"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"zookeeper_user": "billing"},
            "zookeeper_user: expected zookeeper_password as well: the two go together",
        ),
        ({"zookeeper_password": "hunter2"}, "zookeeper_password: expected zookeeper_user as well"),
        ({"zookeeper_auth": "sasl-digest"}, "zookeeper_auth: expected none without zookeeper_user"),
        ({"zookeeper_tls_ca": "ca.pem"}, "zookeeper_tls_ca: expected none without zookeeper_tls=true"),
        (
            {"zookeeper_tls": True, "zookeeper_tls_key": "k"},
            "zookeeper_tls_key: expected none without zookeeper_tls_certificate",
        ),
        (
            {"zookeeper_tls": True, "zookeeper_tls_key_password": "hunter2"},
            "zookeeper_tls_key_password: expected none without zookeeper_tls_certificate",
        ),
        (
            {"zookeeper_tls": True, "zookeeper_tls_ca": "ca.pem", "zookeeper_tls_verify": "none"},
            "zookeeper_tls_ca: expected none with zookeeper_tls_verify=none",
        ),
        ({"zookeeper_acl": "creator"}, "zookeeper_acl: expected zookeeper_user or zookeeper_tls_certificate"),
        ({"zookeeper_acl": "everybody"}, "zookeeper_acl: expected 'open', 'creator', or"),
        ({"zookeeper_acl": "world:anyone:rx"}, "zookeeper_acl: expected"),
        ({"zookeeper_acl": "world:anyone:r,"}, "zookeeper_acl: expected"),
        (USER | {"zookeeper_user": "a:b"}, "zookeeper_user: expected a name without colons"),
        ({"zookeeper": "embedded", **USER}, "zookeeper_user: expected none with the embedded ZooKeeper"),
        ({"zookeeper": "embedded", "zookeeper_tls": True}, "zookeeper_tls: expected none with the embedded"),
        (
            {"zookeeper": "embedded", "zookeeper_acl": "open"},
            "zookeeper_acl: expected none with the embedded",
        ),
    ],
)
def test_what_makes_no_sense_with_zookeeper_is_refused(settings: dict[str, Any], message: str) -> None:
    said = refusal(**ENSEMBLE | settings)
    assert said.startswith(message)
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("world:anyone:r", [("world", "anyone", "r")]),
        ("auth::cdrwa", [("auth", "", "cdrwa")]),
        (
            "x509:CN=billing,O=Acme:cdrwa,digest:ops:aGFzaA==:r",
            [("x509", "CN=billing,O=Acme", "cdrwa"), ("digest", "ops:aGFzaA==", "r")],
        ),
        ("ip:fe80::c:rw", [("ip", "fe80::c", "rw")]),
    ],
)
def test_an_acl_is_written_as_zookeeper_writes_it(text: str, entries: list[tuple[str, str, str]]) -> None:
    assert acl_entries(config(**ENSEMBLE, zookeeper_acl=text).zookeeper_acl or "") == tuple(entries)


def test_a_user_and_tls_come_by_the_environment_too() -> None:
    variables = {"ZOOKEEPER_USER": "billing", "ZOOKEEPER_PASSWORD": "1234", "ZOOKEEPER_TLS": "true"}
    made = SpoutConfig.load(
        environ={f"KINESIS_SPOUT_{name}": text for name, text in variables.items()},
        **REQUIRED,
        zookeeper="zk:2281",
    )
    assert (made.zookeeper_user, made.zookeeper_password, made.zookeeper_tls) == ("billing", "1234", True)


def test_dead_letters_go_to_a_directory_of_the_application_unless_told_otherwise() -> None:
    assert config(stream=ARN).dead_letters_url == ".kinesis-spout/billing/orders/dead-letters"
    assert config(dead_letters="s3a://bucket/dead").dead_letters_url == "s3a://bucket/dead"


@pytest.mark.parametrize("name", ["retry_limit", "message_timeout_seconds", "dead_letters"])
def test_the_text_none_stands_for_none_where_none_is_allowed(name: str) -> None:
    assert getattr(config(**{name: "none"}), name) is None
    assert (
        getattr(SpoutConfig.load(environ={f"KINESIS_SPOUT_{name.upper()}": "None"}, **REQUIRED), name) is None
    )


def test_the_text_none_is_a_value_like_any_other_where_none_is_not_allowed() -> None:
    assert config(app="none").app == "none"
    assert "got 'none'" in refusal(max_pending="none")


def test_the_environment_is_read_as_numbers_and_truth_values() -> None:
    environ = {
        "KINESIS_SPOUT_STREAM": "orders",
        "KINESIS_SPOUT_APP": "1",
        "KINESIS_SPOUT_RETRY_LIMIT": "7",
        "KINESIS_SPOUT_RETRY_JITTER": "0.5",
        "KINESIS_SPOUT_FAIL_ON_DATA_LOSS": "false",
        "PATH": "/bin",
    }
    made = SpoutConfig.load(environ=environ)
    assert (made.app, made.retry_limit, made.retry_jitter, made.fail_on_data_loss) == ("1", 7, 0.5, False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("stop_timeout_seconds", "2m", 120.0),
        ("stop_timeout_seconds", "120", 120.0),
        ("poll_interval_seconds", "500ms", 0.5),
        ("max_buffered_bytes", "64m", 64 * 1024 * 1024),
    ],
)
def test_a_number_in_the_environment_may_have_a_unit(name: str, text: str, value: float) -> None:
    made = SpoutConfig.load(environ={f"KINESIS_SPOUT_{name.upper()}": text}, **REQUIRED)
    assert getattr(made, name) == value


def test_a_number_with_a_unit_has_the_range_of_one_without() -> None:
    with pytest.raises(InvalidConfig, match=r"expected float >= 0\.2, or a duration .*, got '199ms'"):
        SpoutConfig.load(environ={"KINESIS_SPOUT_POLL_INTERVAL_SECONDS": "199ms"}, **REQUIRED)
    assert refusal(poll_interval_seconds="500ms").endswith("got '500ms'")


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINESIS_SPOUT_MAX_PENDING", "5")
    assert SpoutConfig.load(**REQUIRED).max_pending == 5
    assert SpoutConfig.load(**REQUIRED).max_pending == 5


def test_an_unknown_variable_with_our_prefix_is_an_error() -> None:
    with pytest.raises(
        InvalidConfig, match="'KINESIS_SPOUT_RETRY_LIMT': did you mean KINESIS_SPOUT_RETRY_LIMIT"
    ):
        SpoutConfig.load(environ={"KINESIS_SPOUT_RETRY_LIMT": "3"}, **REQUIRED)


def test_the_variable_that_turns_the_native_decoder_off_is_no_setting_and_not_refused() -> None:
    assert SpoutConfig.load(environ={"KINESIS_SPOUT_PURE_PYTHON": "1"}, **REQUIRED) == config()


def test_what_kubernetes_tells_of_a_service_named_kinesis_spout_is_no_setting() -> None:
    injected = {
        "KINESIS_SPOUT_SERVICE_HOST": "10.0.0.11",
        "KINESIS_SPOUT_SERVICE_PORT": "8080",
        "KINESIS_SPOUT_SERVICE_PORT_HTTP_METRICS": "8080",
        "KINESIS_SPOUT_PORT": "tcp://10.0.0.11:8080",
        "KINESIS_SPOUT_PORT_8080_TCP": "tcp://10.0.0.11:8080",
        "KINESIS_SPOUT_PORT_8080_TCP_PROTO": "tcp",
        "KINESIS_SPOUT_PORT_8080_TCP_PORT": "8080",
        "KINESIS_SPOUT_PORT_8080_TCP_ADDR": "10.0.0.11",
        "KINESIS_SPOUT_PORT_53_UDP": "udp://10.0.0.11:53",
        "KINESIS_SPOUT_PORT_132_SCTP_ADDR": "10.0.0.11",
    }
    settings = {"KINESIS_SPOUT_MAX_HOLES": "7"}
    assert SpoutConfig.load(environ=injected | settings, **REQUIRED) == config(max_holes=7)
    assert SpoutConfig.load(environ=injected, **REQUIRED) == config()


@pytest.mark.parametrize(
    "name",
    [
        "SERVICE",
        "SERVICE_HOSTS",
        "SERVICE_HOST_HTTP",
        "SERVICE_PORT_",
        "PORTS",
        "PORT_8080",
        "PORT_8080_TCP_HOST",
    ],
)
def test_what_only_resembles_what_kubernetes_tells_is_an_error(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"unknown environment variable 'KINESIS_SPOUT_{name}'"):
        SpoutConfig.load(environ={f"KINESIS_SPOUT_{name}": "8080"}, **REQUIRED)


@pytest.mark.parametrize("value", ["many", "", "-1", "3.5", "inf"])
def test_a_bad_variable_is_named_with_its_setting(value: str) -> None:
    with pytest.raises(
        InvalidConfig, match=rf"^retry_limit \(from KINESIS_SPOUT_RETRY_LIMIT\).*got '{value}'"
    ):
        SpoutConfig.load(environ={"KINESIS_SPOUT_RETRY_LIMIT": value}, **REQUIRED)


def toml(directory: Path, text: str) -> Path:
    path = directory / "spout.toml"
    path.write_text(text)
    return path


def test_a_toml_file_may_have_a_table_of_ours_among_others(tmp_path: Path) -> None:
    path = toml(
        tmp_path, 'other = 1\n[kinesis_spout]\nstream = "orders"\napp = "billing"\nretry_limit = "none"'
    )
    assert SpoutConfig.load(path, {}) == config(retry_limit=None)


def test_a_toml_file_may_be_ours_alone_and_write_a_time_as_a_time(tmp_path: Path) -> None:
    path = toml(tmp_path, 'stream = "orders"\napp = "billing"\ninitial_position = 2026-01-31T12:00:00Z')
    assert SpoutConfig.load(str(path), {}).start == everywhere(Position.at_timestamp(1769860800))


def test_a_relative_path_in_a_toml_file_stays_relative(tmp_path: Path) -> None:
    path = toml(tmp_path, 'dead_letters = "dead"')
    assert SpoutConfig.load(path, {}, **REQUIRED).dead_letters_url == "dead"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retry_limit = ", "expected TOML in .*spout.toml"),
        ("kinesis_spout = 3", r"expected a table \[kinesis_spout\] in .*got one int"),
        ("retry_limt = 3", "unknown key 'retry_limt' in .*spout.toml.*did you mean retry_limit"),
        ('retry_limit = "3"', r"^retry_limit \(from .*spout.toml\): expected int >= 0, or none, got '3'"),
    ],
)
def test_a_bad_toml_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        SpoutConfig.load(toml(tmp_path, text), {}, **REQUIRED)


def test_a_missing_toml_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"absent\.toml.*No such file"):
        SpoutConfig.load(tmp_path / "absent.toml", {}, **REQUIRED)


def test_keywords_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path, "max_pending = 1\nmax_holes = 1\nshards_per_task = 1")
    environ = {"KINESIS_SPOUT_MAX_PENDING": "2", "KINESIS_SPOUT_MAX_HOLES": "2"}
    made = SpoutConfig.load(path, environ, max_pending=3, **REQUIRED)
    assert (made.max_pending, made.max_holes, made.shards_per_task) == (3, 2, 1)


def test_a_setting_that_contradicts_another_one_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "spout.toml"
    file.write_text('role_session_name = "billing"')
    variable = "KINESIS_SPOUT_ROLE_SESSION_NAME"
    refused = "role_session_name (from {}): expected none without role_arn"
    with pytest.raises(InvalidConfig, match=re.escape(refused.format(variable))):
        SpoutConfig.load(None, {variable: "billing"}, stream="orders", app="billing")
    with pytest.raises(InvalidConfig, match=re.escape(refused.format(file))):
        SpoutConfig.load(file, {}, stream="orders", app="billing")


def test_a_configuration_made_without_its_defaults_says_how_to_make_one() -> None:
    with pytest.raises(InvalidConfig, match=r"write SpoutConfig\.of\(\.\.\.\) with the same arguments"):
        SpoutConfig(stream=5, app="billing")  # type: ignore[call-arg, arg-type]


def test_a_configuration_travels_to_executors_unchanged() -> None:
    made = config(aws_access_key_id="AKIA1", aws_secret_access_key="hunter2", retry_limit=None)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_every_option_can_be_printed_as_a_row() -> None:
    rows = {option.name: option for option in options()}
    assert tuple(rows) == SpoutConfig.__struct_fields__
    assert all(row.type_text and row.doc.endswith((".", "`.")) and row.default for row in rows.values())
    assert (rows["retry_limit"].type_text, rows["retry_limit"].default) == ("int >= 0, or none", "3")
    assert (rows["stream"].default, rows["role_arn"].default) == ("required", "none")
    assert rows["consumer_name"].default == "the application's name"
    assert (rows["max_bytes_per_slice"].default, rows["max_pending"].default) == ("64 MiB", "20,000")


def test_credentials_for_zookeeper_become_a_login_acls_and_tls() -> None:
    given = config(
        **USER,
        zookeeper="zk:2181",
        zookeeper_auth="sasl-digest",
        zookeeper_acl="sasl:billing:cdrwa,world:anyone:r",
        zookeeper_tls=True,
        zookeeper_tls_ca="ca.pem",
        zookeeper_tls_certificate="me.pem",
        zookeeper_tls_key="key.pem",
        zookeeper_tls_key_password="quiet",
        zookeeper_tls_verify="ca",
    )
    assert zookeeper_settings(given) == ZooKeeperSettings(
        app="billing",
        hosts="zk:2181",
        login=Login(user="billing", password="hunter2", is_sasl=True),
        acls=NodeAcls.of([("sasl", "billing", "cdrwa"), ("world", "anyone", "r")]),
        tls=Tls(
            ca="ca.pem",
            certificate="me.pem",
            key="key.pem",
            key_password="quiet",
            verify=True,
            check_host_name=False,
        ),
    )
    assert not any(secret in repr(zookeeper_settings(given)) for secret in ("hunter2", "quiet", "anyone"))
