"""The options for streams, connections, and the place of progress.

ZooKeeper's credentials and ACLs are among them.
"""

import re
from dataclasses import replace
from typing import Final

from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS, MAX_SESSION_TIMEOUT_SECONDS
from kinesis_spout.settings.grammar.stream_names import (
    STREAM_ARN,
    STREAM_NAME,
    WORDS,
    check_streams,
    plain_streams,
)
from kinesis_spout.settings.grammar.value_types import FLAG, PROXY, URL, choice, names, number, seconds, text
from kinesis_spout.settings.grammar.zookeeper_address import ACL_WORDS, acl_entries
from kinesis_spout.settings.option import READS, STREAM_READ, WRITE, Topic, option, setting, shared, under
from kinesis_spout.settings.setting_messages import NotAllowed

_HOST: Final = r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"


def no_dots(path: str) -> None:
    """Refuse "." and ".."."""
    # ZooKeeper refuses them in a path; in the default directory of the dead letters they would lead out of it.
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise NotAllowed("no '.' or '..' as a name: ZooKeeper does not take them")


def _zookeeper(address: str) -> None:
    if address.partition(":")[0] != "embedded":
        no_dots(address)


def _root(node: str) -> None:
    no_dots(node)
    if node == "zookeeper":
        raise NotAllowed("another name: ZooKeeper keeps /zookeeper for itself")


def _acl(written: str) -> None:
    acl_entries(written)  # parsed for its check


_ZOOKEEPER: Final = text(
    "'embedded', 'embedded:<directory>' or 'host:port,host:port[/chroot]'",
    rf"embedded(:.+)?|{_HOST}(,{_HOST})*((/[^/,\s]+)+)?",
    _zookeeper,
)
_ROOT: Final = text(
    "letters, digits, '_', '.' and '-'; for a deeper place, give zookeeper a chroot",
    r"[A-Za-z0-9_.-]+",
    _root,
)
_USER: Final = text("a name without colons, quotes, backslashes and spaces", r'[^:"\\\s]+')
_KEY: Final = text("printable ASCII characters, without spaces and line ends", r"[!-~]+")
_PEM: Final = text("the path of a PEM file")


def _region(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9-]{1,63}", name):
        raise NotAllowed("a region such as eu-central-1")


STREAM: Final = text(
    "a stream name (1 to 128 of a-z A-Z 0-9 _ . -) or a stream ARN", f"{STREAM_NAME}|{STREAM_ARN}", no_dots
)
_STREAMS: Final = replace(text(WORDS, check=check_streams), plain=plain_streams)
"""The streams that a spout reads; kept as text, with a comma between them."""
_APP: Final = text("1 to 128 of a-z A-Z 0-9 _ . -", r"[A-Za-z0-9_.-]{1,128}", no_dots)

STREAMS: Final = under(
    Topic.RUN,
    setting("stream", _STREAMS, has_argument=True, is_required=True,
        elsewhere=("KCL streamName", "KCL streamArn"), topic=Topic.FIRST,
        doc="The stream to read, or several (in Python also as a list); orders-* finds streams by their "
            "names."),
    shared("stream_list_interval_seconds", seconds(above=0), 30.0, name="streamListInterval", uses=STREAM_READ,
        doc="How often to look for new streams of a pattern, and for missing ones."),
    option("streamName", READS, names(), setting="streams", aliases=("kinesis.streamName",), topic=Topic.FIRST,
        doc="The streams to read: names, and patterns such as orders-*. Required without `streamARN`."),
    option("streamARN", READS, names(), setting="streams", topic=Topic.FIRST,
        doc="The streams to read by ARN, also of other accounts; only the name may be a pattern."),
    option("streamName", WRITE, STREAM, setting="stream", aliases=("kinesis.streamName",),
        unset="the column `stream` says",
        topic=Topic.FIRST, doc="The stream to write to."),
    option("streamARN", WRITE, STREAM, setting="stream", topic=Topic.FIRST, doc="The stream to write to, "
            "by its ARN."),
)  # fmt: skip

ACCESS: Final = under(
    Topic.ZOOKEEPER,
    setting("zookeeper_user", _USER,
        doc="The user to log in as; with `zookeeper_password`."),
    setting("zookeeper_password", text(), secret=True,
        doc="The password of `zookeeper_user`."),
    setting("zookeeper_auth", choice("digest", "sasl-digest"), "digest",
        doc="How `zookeeper_user` logs in: ZooKeeper's digest scheme, or SASL (DIGEST-MD5), which needs "
            "`kinesis-spout[sasl]`."),
    setting("zookeeper_acl", text(ACL_WORDS, check=_acl), secret=True,
        unset="`creator` with a user or certificate, else `open`",
        doc="Who may use the nodes created here: everybody (`open`), the user or certificate that created "
            "them (`creator`), or whom ZooKeeper's own text names."),
    setting("zookeeper_tls", FLAG, False,
        doc="Speak TLS with ZooKeeper."),
    setting("zookeeper_tls_ca", _PEM, unset="the system's",
        doc="The CA certificates to trust."),
    setting("zookeeper_tls_certificate", _PEM,
        doc="This client's certificate, where ZooKeeper asks for one."),
    setting("zookeeper_tls_key", _PEM,
        doc="The key of `zookeeper_tls_certificate`, if it is in a separate file."),
    setting("zookeeper_tls_key_password", text(), secret=True,
        doc="The password of `zookeeper_tls_key`."),
    setting("zookeeper_tls_verify", choice("full", "ca", "none"), "full",
        doc="What is checked of a server's certificate: CA and host name (`full`), only the CA (`ca`), or "
            "nothing, for tests (`none`)."),
)  # fmt: skip
"""Our credentials for ZooKeeper, whom we trust, and who may use the nodes we make."""

ZOOKEEPER: Final = under(
    Topic.ZOOKEEPER,
    setting("zookeeper", _ZOOKEEPER, "embedded", has_argument=True,
        topic=Topic.FIRST, doc="Where progress is kept. `embedded` starts the ZooKeeper that PySpark "
            "ships, for this machine alone."),
    setting("zookeeper_root", _ROOT, "kinesis_spout",
        doc="The parent of all applications' nodes."),
    *ACCESS,
    setting("session_timeout_seconds", seconds(1, MAX_SESSION_TIMEOUT_SECONDS),
        DEFAULT_SESSION_TIMEOUT_SECONDS,
        elsewhere=("KCL failoverTimeMillis",),
        topic=Topic.SHARING, doc="How long ZooKeeper waits for a silent spout before it frees its shards."),
)  # fmt: skip
"""The place, and the session with it."""

PLACE: Final = {row.setting: row for row in ZOOKEEPER if row.is_setting}
"""By name: the settings of a connection, for what needs no stream."""

PROGRESS: Final = under(
    Topic.SHARING,
    setting("app", _APP, has_argument=True, is_required=True,
        elsewhere=("KCL applicationName",), topic=Topic.FIRST,
        doc="The application's name. Spouts of one name share the stream's shards and have one progress."),
    *ZOOKEEPER,
    setting("mode", choice("sharing", "standby"), "sharing",
        doc="`sharing`: takes its share of the shards. `standby`: takes shards only when no sharing spout "
            "is alive; one standby spout then takes all."),
    setting("weight", number(at_most=1_000, above=0), 1.0,
        doc="Its share of the shards, relative to the others'."),
    setting("hand_over_timeout_seconds", seconds(0, 600), 3.0,
        elsewhere=("KCL gracefulLeaseHandoffTimeoutMillis",),
        doc="How long to wait for a shard's records in flight when another spout takes it over; that spout "
            "then gets them."),
)  # fmt: skip
"""The place of progress, and the shares of members."""

CLIENT: Final = under(
    Topic.ACCOUNTS,
    shared("region", text("a region such as eu-central-1", check=_region), has_argument=True,
        aliases=("kinesis.region", "kinesis.kinesisRegion", "regionName"),
        unset="that of the ARN, else of AWS's endpoint, else boto3's own rules",
        elsewhere=("KCL regionName",), topic=Topic.FIRST,
        doc="The AWS region."),
    shared("endpoint_url", URL, has_argument=True, aliases=("endpoint", "kinesis.endpointUrl"),
        unset="the region's",
        elsewhere=("KCL kinesisEndpoint",),
        doc="A Kinesis endpoint other than AWS's: an emulator, a VPC endpoint."),
    shared("role_arn", text("an IAM role ARN", r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+"),
        aliases=("kinesis.stsRoleArn", "awsSTSRoleARN"),
        doc="A role to assume; its session renews itself."),
    shared("role_session_name", text("2 to 64 of a-z A-Z 0-9 _ + = , . @ -", r"[\w+=,.@-]{2,64}"),
        aliases=("kinesis.stsSessionName", "awsSTSSessionName"), unset="kinesis-spout",
        doc="The session's name in CloudTrail; with `role_arn`."),
    shared("role_external_id", text(), secret=True,
        doc="The external id that the role demands; with `role_arn`."),
    shared("sts_endpoint", URL, aliases=("kinesis.stsEndpointUrl",), unset="the region's",
        doc="An STS endpoint other than AWS's; with `role_arn`."),
    shared("aws_access_key_id", _KEY, name="awsAccessKey",
        aliases=("awsAccessKeyId", "kinesis.awsAccessKeyId"), secret=True, unset="boto3's own rules",
        doc="Static credentials, with `aws_secret_access_key`."),
    shared("aws_secret_access_key", _KEY, name="awsSecretKey", aliases=("kinesis.awsSecretKey",),
        secret=True,
        doc="The secret of `aws_access_key_id`."),
    shared("aws_session_token", _KEY, name="sessionToken", aliases=("kinesis.sessionToken",), secret=True,
        doc="The token of temporary credentials; with `aws_access_key_id`."),
    shared("aws_profile", text(), unset="boto3's own rules",
        doc="A profile of AWS's shared configuration, on every machine: its credentials (keys, role, SSO, "
            "process), region and endpoints; not with `aws_access_key_id`."),
    shared("ca_bundle", text(), unset="what boto3 trusts",
        doc="A PEM file with a CA bundle, on every machine, for Kinesis, STS, SSO and S3."),
    shared("proxy_url", PROXY, secret=True, unset="`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`",
        doc="An HTTP proxy for Kinesis, STS, SSO and S3."),
    shared("use_fips_endpoint", FLAG, unset="boto3's own rules",
        doc="Call AWS's FIPS endpoints of Kinesis, STS, SSO and S3; not with `endpoint_url`."),
    shared("use_dualstack_endpoint", FLAG, unset="boto3's own rules",
        doc="Call the endpoints of Kinesis, STS, SSO and S3 that have IPv6 addresses too; not with "
            "`endpoint_url`."),
)  # fmt: skip
"""The connection to Kinesis; see ``rules``."""
