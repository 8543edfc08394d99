"""The options that say which streams, how to reach them, and where progress is kept."""

import re
from typing import Final

from kinesis_spout.settings.messages import NotAllowed
from kinesis_spout.settings.option import Option, Use
from kinesis_spout.settings.value_types import SECONDS, Names, Number, Text, Url

EVERYWHERE: Final = frozenset(Use)
READS: Final = frozenset({Use.STREAM_READ, Use.BATCH_READ})
STREAM_READ: Final = frozenset({Use.STREAM_READ})
WRITE: Final = frozenset({Use.WRITE})

STREAM_NAME: Final = r"[a-zA-Z0-9_.-]{1,128}"
_STREAM_ARN: Final = rf"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{{12}}:stream/{STREAM_NAME}"
_HOST: Final = r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"


def _no_dots(path: str) -> None:
    # ZooKeeper refuses "." and ".." in a path; in the default directory of the dead letters they would climb.
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise NotAllowed("no '.' or '..' as a name: ZooKeeper does not take them")


def _zookeeper(address: str) -> None:
    if not address.startswith("embedded"):
        _no_dots(address)


def _root(node: str) -> None:
    _no_dots(node)
    if node == "zookeeper":
        raise NotAllowed("another name: ZooKeeper keeps /zookeeper for itself")


def _region(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9-]{1,63}", name):
        raise NotAllowed("a region such as eu-central-1")


STREAM: Final = Text(
    words="a stream name (1 to 128 of a-z A-Z 0-9 _ . -) or a stream ARN",
    pattern=f"{STREAM_NAME}|{_STREAM_ARN}",
    refuse=_no_dots,
)
_APP: Final = Text(words="1 to 128 of a-z A-Z 0-9 _ . -", pattern=r"[A-Za-z0-9_.-]{1,128}", refuse=_no_dots)
_ZOOKEEPER: Final = Text(
    words="'embedded', 'embedded:<directory>' or 'host:port,host:port[/chroot]'",
    pattern=rf"embedded(:.+)?|{_HOST}(,{_HOST})*((/[^/,\s]+)+)?",
    refuse=_zookeeper,
)

STREAMS: Final = (
    Option(
        setting="stream",
        is_setting=True,
        has_argument=True,
        type=STREAM,
        is_required=True,
        doc="The Kinesis stream to read: its name or its ARN.",
    ),
    Option(
        setting="streams",
        name="streamName",
        aliases=("kinesis.streamName",),
        uses=READS,
        type=Names(),
        doc="The streams to read, by name. Either this or `streamARN` is required.",
    ),
    Option(
        setting="streams",
        name="streamARN",
        uses=READS,
        type=Names(),
        doc="The streams to read, by ARN: also those of other accounts.",
    ),
    Option(
        setting="stream",
        name="streamName",
        aliases=("kinesis.streamName",),
        uses=WRITE,
        type=STREAM,
        unset="the column `stream` says",
        doc="The stream to write to, by name.",
    ),
    Option(
        setting="stream",
        name="streamARN",
        uses=WRITE,
        type=STREAM,
        doc="The stream to write to, by ARN.",
    ),
)
"""Which streams."""

PROGRESS: Final = (
    Option(
        setting="app",
        is_setting=True,
        has_argument=True,
        type=_APP,
        is_required=True,
        doc="The application's name. Spouts of one name have one progress: one works, others stand by.",
    ),
    Option(
        setting="app",
        name="checkpointApp",
        uses=STREAM_READ,
        type=_APP,
        doc="Publish the query's progress in ZooKeeper under this application's name; with `zookeeper`.",
    ),
    Option(
        setting="zookeeper",
        is_setting=True,
        has_argument=True,
        type=_ZOOKEEPER,
        default="embedded",
        doc="Where progress is kept. `embedded` starts the ZooKeeper that PySpark ships.",
    ),
    Option(
        setting="zookeeper",
        name="zookeeper",
        uses=STREAM_READ,
        type=_ZOOKEEPER,
        doc="Where it is published; with `app`.",
    ),
    Option(
        setting="zookeeper_root",
        is_setting=True,
        name="zookeeperRoot",
        uses=STREAM_READ,
        type=Text(
            words="letters, digits, '_', '.' and '-'; for a deeper place, give zookeeper a chroot",
            pattern=r"[A-Za-z0-9_.-]+",
            refuse=_root,
        ),
        default="kinesis_spout",
        doc="The node that all applications' nodes are below.",
    ),
    Option(
        setting="session_timeout_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=1, at_most=120),
        default=6.0,
        doc="How long ZooKeeper waits for a silent spout before it frees its shards.",
    ),
)
"""Where progress is kept, or published beside the checkpoint of a query."""

CLIENT: Final = (
    Option(
        setting="region",
        is_setting=True,
        has_argument=True,
        name="region",
        aliases=("kinesis.region", "kinesis.kinesisRegion", "regionName"),
        uses=EVERYWHERE,
        type=Text(refuse=_region),
        unset="the ARN's, the endpoint's, else boto3's own rules",
        doc="The AWS region; unset: that of the stream's ARN or of AWS's endpoint, else boto3's own rules.",
    ),
    Option(
        setting="endpoint_url",
        is_setting=True,
        has_argument=True,
        name="endpointUrl",
        aliases=("endpoint", "kinesis.endpointUrl"),
        uses=EVERYWHERE,
        type=Url(),
        unset="the region's",
        doc="A Kinesis endpoint other than AWS's, for emulators and VPC endpoints.",
    ),
    Option(
        setting="role_arn",
        is_setting=True,
        name="roleArn",
        aliases=("kinesis.stsRoleArn", "awsSTSRoleARN"),
        uses=EVERYWHERE,
        type=Text(words="an IAM role ARN", pattern=r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+"),
        doc="A role to assume; its session renews itself.",
    ),
    Option(
        setting="role_session_name",
        is_setting=True,
        name="roleSessionName",
        aliases=("kinesis.stsSessionName", "awsSTSSessionName"),
        uses=EVERYWHERE,
        type=Text(words="2 to 64 of a-z A-Z 0-9 _ + = , . @ -", pattern=r"[\w+=,.@-]{2,64}"),
        unset="kinesis-spout",
        doc="The session's name in CloudTrail; with `role_arn` only.",
    ),
    Option(
        setting="role_external_id",
        is_setting=True,
        name="roleExternalId",
        uses=EVERYWHERE,
        type=Text(),
        secret=True,
        doc="The external id that the role demands; with `role_arn` only.",
    ),
    Option(
        setting="sts_endpoint",
        is_setting=True,
        name="stsEndpoint",
        aliases=("kinesis.stsEndpointUrl",),
        uses=EVERYWHERE,
        type=Url(),
        unset="the region's",
        doc="An STS endpoint other than AWS's; with `role_arn` only.",
    ),
    Option(
        setting="aws_access_key_id",
        is_setting=True,
        name="awsAccessKey",
        aliases=("awsAccessKeyId", "kinesis.awsAccessKeyId"),
        uses=EVERYWHERE,
        type=Text(),
        secret=True,
        unset="boto3's own rules",
        doc="Static credentials, with `aws_secret_access_key`; none: boto3's own rules.",
    ),
    Option(
        setting="aws_secret_access_key",
        is_setting=True,
        name="awsSecretKey",
        aliases=("kinesis.awsSecretKey",),
        uses=EVERYWHERE,
        type=Text(),
        secret=True,
        doc="The secret that belongs to `aws_access_key_id`.",
    ),
    Option(
        setting="aws_session_token",
        is_setting=True,
        name="sessionToken",
        aliases=("kinesis.sessionToken",),
        uses=EVERYWHERE,
        type=Text(),
        secret=True,
        doc="The token of temporary credentials; with `aws_access_key_id` only.",
    ),
)
"""How Kinesis is reached; see ``rules``."""
