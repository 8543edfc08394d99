"""The options that say which streams, and how to reach them."""

from typing import Final

from kinesis_spout.structured.options.tables.specs import Kind, OptionSpec, Use

_EVERYWHERE: Final = frozenset(Use)
_READS: Final = frozenset({Use.STREAM_READ, Use.BATCH_READ})
_WRITE: Final = frozenset({Use.WRITE})

STREAMS: Final = (
    OptionSpec(
        name="streamName",
        aliases=("kinesis.streamName",),
        uses=_READS,
        kind=Kind.LIST,
        doc="The streams to read, by name. Either this or streamARN is required.",
    ),
    OptionSpec(
        name="streamARN",
        uses=_READS,
        kind=Kind.LIST,
        doc="The streams to read, by ARN: also those of other accounts.",
    ),
    OptionSpec(
        name="streamName",
        aliases=("kinesis.streamName",),
        uses=_WRITE,
        kind=Kind.TEXT,
        unset="the column `stream` says",
        doc="The stream to write to, by name.",
    ),
    OptionSpec(
        name="streamARN",
        uses=_WRITE,
        kind=Kind.TEXT,
        doc="The stream to write to, by ARN.",
    ),
)
"""Which streams; see ``connection``."""

CLIENT: Final = (
    OptionSpec(
        name="region",
        aliases=("kinesis.region", "kinesis.kinesisRegion", "regionName"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        unset="the ARN's, the endpoint's, else the environment's",
        doc="The AWS region of the streams.",
    ),
    OptionSpec(
        name="endpointUrl",
        aliases=("endpoint", "kinesis.endpointUrl"),
        uses=_EVERYWHERE,
        kind=Kind.URL,
        unset="the region's",
        doc="A Kinesis endpoint: a VPC endpoint, or an emulator.",
    ),
    OptionSpec(
        name="awsAccessKey",
        aliases=("awsAccessKeyId", "kinesis.awsAccessKeyId"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        unset="boto3's own rules",
        secret=True,
        doc="Static credentials; with awsSecretKey.",
    ),
    OptionSpec(
        name="awsSecretKey",
        aliases=("kinesis.awsSecretKey",),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        secret=True,
        doc="The secret that belongs to awsAccessKey.",
    ),
    OptionSpec(
        name="sessionToken",
        aliases=("kinesis.sessionToken",),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        secret=True,
        doc="The token of temporary credentials; with awsAccessKey.",
    ),
    OptionSpec(
        name="roleArn",
        aliases=("kinesis.stsRoleArn", "awsSTSRoleARN"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        doc="A role to assume; its session renews itself.",
    ),
    OptionSpec(
        name="roleSessionName",
        aliases=("kinesis.stsSessionName", "awsSTSSessionName"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        unset="kinesis-spout",
        doc="The session's name in CloudTrail; with roleArn.",
    ),
    OptionSpec(
        name="roleExternalId",
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        secret=True,
        doc="The external id that the role demands; with roleArn.",
    ),
    OptionSpec(
        name="stsEndpoint",
        aliases=("kinesis.stsEndpointUrl",),
        uses=_EVERYWHERE,
        kind=Kind.URL,
        unset="the region's",
        doc="Where the role is assumed; with roleArn.",
    ),
)
"""How to reach them."""
