import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.kinesis.write.put_records import PutOrder
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.shard_positions import EndPositions
from kinesis_spout.settings.option import Use
from kinesis_spout.settings.source_options import BatchReadOptions, StreamReadOptions, WriteOptions
from kinesis_spout.settings.source_options.option_reader import OptionReader
from kinesis_spout.settings.table import OPTIONS
from shard_state import Position, StartPositions
from tests.support.option_tables import options_table, settings_table

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
OTHER_REGIONS_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
ROLE = "arn:aws:iam::123456789012:role/reader"
SHARD = "shardId-000000000000"
NOON = 1769860800.0  # 2026-01-31T12:00:00Z


def stream_read(**options: str) -> StreamReadOptions:
    return StreamReadOptions.of({"streamName": "orders"} | options)


def batch_read(**options: str) -> BatchReadOptions:
    return BatchReadOptions.of({"streamName": "orders"} | options)


def refusal(of: Callable[[dict[str, str]], Any], options: dict[str, str]) -> str:
    with pytest.raises(InvalidConfig) as refused:
        of(options)
    return str(refused.value)


# --- what holds when nothing is said

AS_AWS_ALLOWS = ReadSettings(
    fail_on_data_loss=True,
    deaggregate=True,
    max_records_per_fetch=10_000,
    fetch_period_seconds=0.2,
    max_fetch_bytes_per_second=2_000_000,
    max_total_fetch_bytes_per_second=None,
    fan_out_consumer=None,
    extra_columns=(),
)


def test_a_stream_is_all_that_a_streaming_read_needs() -> None:
    assert stream_read() == StreamReadOptions(
        streams=("orders",),
        client=KinesisClientSettings(),
        start=StartPositions(default=Position.latest()),
        read=AS_AWS_ALLOWS,
        idle_fetch_period_seconds=1.0,
        shard_list_seconds=10.0,
        shards_per_task=None,
        bytes_per_task=8 * 1024 * 1024,
        max_records_per_trigger=None,
        max_bytes_per_trigger=None,
        min_records_per_trigger=None,
        max_trigger_delay_seconds=900.0,
        max_arrival_skew_seconds=0.0,
        max_buffered_bytes=256 * 1024 * 1024,
        fetch_threads=8,
        stream_list_interval_seconds=30.0,
        log_level="WARNING",
        page_host=None,
    )


def test_a_stream_is_all_that_a_batch_read_needs() -> None:
    assert batch_read() == BatchReadOptions(
        streams=("orders",),
        client=KinesisClientSettings(),
        start=StartPositions(default=Position.trim_horizon()),
        end=EndPositions(default=Position.latest()),
        read=AS_AWS_ALLOWS,
        shards_per_task=None,
    )


def test_a_write_needs_no_option() -> None:
    assert WriteOptions.of({}) == WriteOptions(
        stream=None,
        client=KinesisClientSettings(),
        partition_key=None,
        max_records_per_call=500,
        max_bytes_per_call=5 * 1024 * 1024,
        deadline_seconds=300.0,
        order=PutOrder.UNORDERED,
        dead_letters=None,
        aggregate_bytes=None,
    )


# --- what is refused

STREAM, BATCH, WRITE = StreamReadOptions.of, BatchReadOptions.of, WriteOptions.of
READ = {"streamName": "orders"}
POSITIONS = '{"shardId-000000000000": {"iteratorType": "TRIM_HORIZON"}}'
EFO = {"consumerMode": "efo", "consumerName": "a"}
ONLY_AGGREGATED = "option aggregationMaxSize: expected it only with aggregation=true"
OF_COLUMNS = "option extraColumns: expected a comma-separated list of encryptionType"
KEYS = {"awsAccessKey": "hush", "awsSecretKey": "hush"}
OF_ANOTHER_REGION = {"region": "eu-west-1", "endpointUrl": "https://kinesis.us-east-1.amazonaws.com"}

REFUSED: list[tuple[Callable[[dict[str, str]], Any], dict[str, str], tuple[str, ...]]] = [
    # Spellings.
    (WRITE, {"region": "a", "kinesis.region": "b"}, ("region and kinesis.region are the same option",)),
    (WRITE, {"awsSecretKey": "hush1", "kinesis.awsSecretKey": "hush2"}, ("are the same option",)),
    (STREAM, READ | {"streamNmae": "hush"}, ("streamNmae", "did you mean streamName?")),
    (STREAM, READ | {"regoin": "hush"}, ("regoin", "did you mean region?")),
    (STREAM, READ | {"maxRecordPerTrigger": "hush"}, ("maxRecordPerTrigger", "mean maxRecordsPerTrigger?")),
    (STREAM, READ | {"region": " "}, ("leave it out",)),
    # Options of other sources.
    (STREAM, READ | {"path": "x"}, ("path", "streamName")),
    (STREAM, READ | {"registeredConsumerId": "x"}, ("registeredConsumerId", "consumerName")),
    (STREAM, READ | {"requireConsumerDeregistration": "x"}, ("requireConsumerDer", "fan-out deregister")),
    (STREAM, READ | {"guarantee": "x"}, ("guarantee", "Spark's own")),
    (STREAM, READ | {"kinesis.maxFetchRecordsPerShard": "x"}, ("maxFetchRecordsPerShard", "maxRecordsPerTrigger")),
    (STREAM, READ | {"kinesis.dynamodb.tableName": "x"}, ("kinesis.dynamodb.tableName", "checkpoint")),
    (STREAM, READ | {"serviceCredential": "x"}, ("serviceCredential", "roleArn")),
    # Options of another use.
    (BATCH, READ | {"minRecordsPerTrigger": "1"}, ("option minRecordsPerTrigger is one of", "spark.readStream")),
    (STREAM, READ | {"endingPosition": "1"}, ("option endingPosition is one of", "spark.read)")),
    (STREAM, READ | {"deadLetters": "1"}, ("option deadLetters is one of", "writes")),
    (WRITE, READ | {"initialPosition": "1"}, ("option initialPosition is one of", "spark.readStream")),
    (WRITE, READ | {"startingPosition": "1"}, ("option startingPosition is one of", "spark.read)")),
    (BATCH, READ | {"maxTriggerDelay": "1"}, ("option maxTriggerDelay is one of", "from startingPosition to end")),
    # Streams.
    *(
        (of, options, (said,))
        for of in (STREAM, BATCH)
        for options, said in (
            ({}, "streamName or streamARN"),
            ({"streamName": "orders", "streamARN": ARN}, "streamARN"),
            ({"streamName": "orders,"}, "streamName"),
            ({"streamName": "orders,orders"}, "streamName"),
            ({"streamName": "or ders"}, "streamName"),
            ({"streamName": ARN}, "give it as streamARN"),
            ({"streamARN": "orders"}, "give it as streamName"),
            ({"streamARN": "arn:aws:s3:::orders"}, "streamARN"),
            ({"streamARN": f"{ARN},{OTHER_REGIONS_ARN}"}, "one region"),
            ({"streamName": "bills,orders-[ab]"}, "option streamName: expected"),
            ({"streamName": "bills,orders *"}, "option streamName: expected"),
            ({"streamName": "bills,a/*"}, "option streamName: expected"),
            ({"streamName": "bills,."}, "option streamName: expected"),
        )
    ),
    (STREAM, {"streamName": "orders-*", "initialPosition": POSITIONS}, ("orders-* may find several",)),
    (WRITE, {"streamName": "orders-*"}, ("expected a stream name",)),
    (WRITE, {"streamName": "orders,bills"}, ("streamName",)),
    # How Kinesis is reached.
    (WRITE, {"awsAccessKey": "hush"}, ("awsSecretKey",)),
    (WRITE, {"awsSecretKey": "hush"}, ("awsAccessKey",)),
    (WRITE, {"sessionToken": "hush"}, ("awsAccessKey",)),
    (WRITE, {"roleSessionName": "reader"}, ("roleArn",)),
    (WRITE, {"roleExternalId": "hush"}, ("roleArn",)),
    (WRITE, {"stsEndpoint": "https://sts.example"}, ("roleArn",)),
    (WRITE, {"roleArn": "reader"}, ("roleArn",)),
    (WRITE, {"roleArn": ROLE, "roleSessionName": "a b"}, ("roleSessionName",)),
    (WRITE, {"awsProfile": "me"} | KEYS, ("awsProfile",)),
    (WRITE, {"proxyUrl": "proxy:3128"}, ("proxyUrl",)),
    (WRITE, {"proxyUrl": "http://me:hush@proxy"}, ("proxyUrl",)),
    (WRITE, {"proxyUrl": "http://me:hush@proxy:port"}, ("proxyUrl",)),
    (WRITE, {"proxyUrl": "http://me:hush@proxy:3128/path"}, ("proxyUrl",)),
    (WRITE, {"proxyUrl": "socks5://me:hush@proxy:1080"}, ("proxyUrl",)),
    (WRITE, {"caBundle": ""}, ("caBundle",)),
    (WRITE, {"endpointUrl": "localhost:4566"}, ("endpointUrl",)),
    (WRITE, {"endpointUrl": "http://localhost:port"}, ("endpointUrl",)),
    (WRITE, {"endpointUrl": "http://me:hush@localhost"}, ("endpointUrl",)),
    (WRITE, {"region": "Frankfurt am Main"}, ("region",)),
    (WRITE, {"region": "eu-west-1", "streamARN": ARN}, ("region",)),
    (WRITE, OF_ANOTHER_REGION, ("endpointUrl",)),
    # Values out of range.
    *(
        (of, READ | {option: text}, (f"option {option}: expected", repr(text)))
        for of, option, texts in (
            (STREAM, "maxRecordsPerFetch", ["0", "10001", "-1", "1e3", "ten", "1.5", "٣"]),
            (STREAM, "maxFetchRate", ["0", "2.1", "-1", "nan", "fast", "1MB"]),
            (STREAM, "minFetchPeriod", ["199ms", "1", "1y", "s", "-1s", "1e3s", "99999999999999999999s"]),
            (STREAM, "idleFetchPeriod", ["100ms"]),
            (STREAM, "shardFetchInterval", ["0s", "1000"]),
            (STREAM, "shardsPerTask", ["0"]),
            (STREAM, "bytesPerTask", ["0"]),
            (STREAM, "maxRecordsPerTrigger", ["0"]),
            (STREAM, "maxBytesPerTrigger", ["0", "1.5m", "m"]),
            (STREAM, "minRecordsPerTrigger", ["0"]),
            (STREAM, "maxBufferedBytes", ["19m"]),
            (STREAM, "fetchThreads", ["0"]),
            (STREAM, "failOnDataLoss", ["no", "1"]),
            (STREAM, "consumerMode", ["streaming"]),
            (STREAM, "pageServerHost", ["host:", "a b", "http://host"]),
            (WRITE, "maxRecordsPerCall", ["0", "501"]),
            (WRITE, "maxBytesPerCall", ["1023k", "11m"]),
            (WRITE, "deliveryTimeout", ["999ms"]),
            (WRITE, "deadLetters", ["file://dead", "s3:/dead"]),
            (WRITE, "order", ["shard"]),
        )
        for text in texts
    ),
    (STREAM, READ | {"extraColumns": "data"}, (OF_COLUMNS, "subSequenceNumber, explicitHashKey, got 'data'")),
    (STREAM, READ | {"extraColumns": "encryptionType,ENCRYPTIONTYPE"}, (OF_COLUMNS, "each once")),
    (STREAM, READ | {"extraColumns": "encryptionType,"}, (OF_COLUMNS, "without an empty part")),
    # What does not go together.
    (STREAM, READ | {"consumerMode": "efo"}, ("expected consumerName as well with efo",)),
    (BATCH, READ | {"consumerMode": "efo"}, ("a batch read asks for the records it wants",)),
    (WRITE, {"aggregationMaxSize": "10k", "aggregation": "false"}, (ONLY_AGGREGATED,)),
    *(
        (STREAM, READ | options, (f"option {option}: expected ", said))
        for option, options, said in (
            ("idleFetchPeriod", {"minFetchPeriod": "5s", "idleFetchPeriod": "4s"}, "at least minFetchPeriod"),
            ("minRecordsPerTrigger", {"minRecordsPerTrigger": "10", "maxRecordsPerTrigger": "9"}, "at most"),
            ("maxTriggerDelay", {"maxTriggerDelay": "1m"}, "minRecordsPerTrigger"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("of", "options", "said"), REFUSED, ids=str)
def test_what_is_refused_is_named_with_what_is_expected(
    of: Callable[[dict[str, str]], Any], options: dict[str, str], said: tuple[str, ...]
) -> None:
    message = refusal(of, options)

    assert all(part in message for part in said), message
    assert message.startswith(said[0]) or not said[0].startswith("option "), message
    assert "hush" not in message, "it may be a secret"


# --- spellings


@pytest.mark.parametrize("spelling", ["streamName", "STREAMNAME", "streamname", "Kinesis.StreamName"])
def test_the_case_of_an_option_says_nothing(spelling: str) -> None:
    assert StreamReadOptions.of({spelling: " orders "}).streams == ("orders",)


@pytest.mark.parametrize("use", Use)
def test_every_alias_means_its_option(use: Use) -> None:
    for spec in OPTIONS:
        for alias in spec.aliases if use in spec.uses else ():
            given = OptionReader({alias: "x"}, use)
            assert given.text(spec.name) == "x", alias


def test_the_options_of_the_awslabs_connector_can_stay() -> None:
    options = StreamReadOptions.of(
        {
            "kinesis.region": "us-east-2",
            "kinesis.streamName": "orders",
            "kinesis.consumerType": "GetRecords",
            "kinesis.endpointUrl": "https://kinesis.us-east-2.amazonaws.com",
            "kinesis.startingposition": "AT_TIMESTAMP 2026-01-31T04:00:00-08:00",
            "kinesis.stsRoleArn": ROLE,
            "kinesis.stsSessionName": "reader",
            "kinesis.getRecords.fetchIntervalMs": "500",
            "kinesis.describeShardInterval": "50s",
        }
    )

    assert options.client == KinesisClientSettings(
        region="us-east-2",
        endpoint_url="https://kinesis.us-east-2.amazonaws.com",
        role_arn=ROLE,
        role_session_name="reader",
    )
    assert options.start.default == Position.at_timestamp(NOON)
    assert (options.read.fetch_period_seconds, options.shard_list_seconds) == (0.5, 50.0)


def test_two_spellings_may_agree() -> None:
    assert stream_read(**{"kinesis.region": "eu-west-1"}, region="eu-west-1").client.region == "eu-west-1"


OF_DATABRICKS = """
    streamName streamARN region endpoint initialPosition consumerMode consumerName consumerNamePrefix
    consumerRefreshInterval registeredConsumerId registeredConsumerIdType requireConsumerDeregistration
    deregisterConsumerTimeoutS fetchBufferSize maxFetchDuration maxFetchRate minFetchPeriod maxRecordsPerFetch
    shardsPerTask maxPartitions shardFetchInterval maxShardsPerDescribe coalesceThresholdBlockSize coalesceBinSize
    reuseKinesisClient clientRetries serviceCredential roleArn roleExternalId roleSessionName stsEndpoint
    awsAccessKey awsSecretKey sessionToken awsUseInstanceProfile
"""
OF_AWSLABS = """
    endpointUrl region streamName consumerType failOnDataLoss maxFetchRecordsPerShard maxFetchTimePerShardSec
    startingPosition describeShardInterval minBatchesToRetain checkNewRecordThreads metadataCommitterType
    metadataPath metadataNumRetries metadataRetryIntervalsMs metadataMaxRetryIntervalMs clientNumRetries
    clientRetryIntervalsMs clientMaxRetryIntervalMs consumerName stsRoleArn stsSessionName stsEndpointUrl
    awsAccessKeyId awsSecretKey kinesisRegion credentialProviderClass credentialProviderParam dynamodb.tableName
    subscribeToShard.timeoutSec subscribeToShard.maxRetries getRecords.numberOfRecordsPerFetch
    getRecords.fetchIntervalMs sink.flushWaitTimeMs sink.recordMaxBufferedTimeMs sink.maxConnections
    sink.aggregationEnabled sink.recordTtl
"""
OF_GLUE = """
    streamName endpointUrl streamARN startingPosition maxFetchTimeInMs maxFetchRecordsPerShard maxRecordPerRead
    addIdleTimeBetweenReads idleTimeBetweenReadsInMs describeShardInterval numRetries retryIntervalMs
    maxRetryIntervalMs avoidEmptyBatches roleArn roleSessionName awsSTSRoleARN awsSTSSessionName
    addRecordTimestamp emitConsumerLagMetrics startingTimestamp fanoutConsumerArn classification delimiter
    inferSchema
"""


@pytest.mark.parametrize(
    "option",
    sorted({*OF_DATABRICKS.split(), *(f"kinesis.{name}" for name in OF_AWSLABS.split()), *OF_GLUE.split()}),
)
def test_every_option_of_another_source_is_taken_or_refused_with_what_to_do_here(option: str) -> None:
    refused = ""
    try:
        OptionReader({option: "1"}, *Use)
    except InvalidConfig as error:
        refused = str(error)
    assert not refused or refused.startswith(f"option {option} is not taken: ")


@pytest.mark.parametrize("unknown", ["reuseClient", "kinesisUnsafeMode", "header", "mergeSchema", "x"])
def test_an_unknown_option_that_is_like_no_other_is_refused_without_a_guess(unknown: str) -> None:
    message = refusal(StreamReadOptions.of, {"streamName": "orders", unknown: "hush"})

    assert "did you mean" not in message
    assert "leave it out, or take one of awsAccessKey, " in message
    assert "endingPosition" not in message, "of a batch read"


def test_what_spark_puts_among_the_options_passes() -> None:
    assert WriteOptions.of({"checkpointLocation": "/c", "queryName": "q"}) == WriteOptions.of({})


# --- streams and how to reach them


def test_several_streams_are_a_list() -> None:
    assert StreamReadOptions.of({"streamName": "orders, bills"}).streams == ("orders", "bills")


def test_a_stream_may_be_a_pattern_by_name_or_by_arn() -> None:
    assert StreamReadOptions.of({"streamName": "orders-*, bills"}).streams == ("orders-*", "bills")
    options = BatchReadOptions.of({"streamARN": f"{ARN}-?"})
    assert (options.streams, options.client.region) == ((f"{ARN}-?",), "eu-central-1")


def test_an_arn_says_the_region() -> None:
    options = BatchReadOptions.of({"streamARN": ARN})

    assert (options.streams, options.client.region) == ((ARN,), "eu-central-1")


@pytest.mark.parametrize(
    "host",
    [
        "kinesis.eu-central-1.amazonaws.com",
        "vpce-0a-1b.kinesis.eu-central-1.vpce.amazonaws.com",
        "kinesis-fips.eu-central-1.amazonaws.com",
        "1234.data-kinesis.eu-central-1.amazonaws.com",
        "kinesis.eu-central-1.api.aws",
    ],
)
def test_an_endpoint_of_aws_says_the_region(host: str) -> None:
    assert stream_read(endpointUrl=f"https://{host}").client.region == "eu-central-1"


def test_an_emulators_endpoint_leaves_the_region_open() -> None:
    assert stream_read(endpointUrl="http://localhost:4566").client.region is None


def test_a_write_may_name_its_stream_either_way() -> None:
    assert WriteOptions.of({"streamName": "orders"}).stream == "orders"
    assert WriteOptions.of({"streamARN": ARN}).stream == ARN


def test_a_profile_a_proxy_and_authorities_travel_to_the_executors_from_every_door() -> None:
    given = {"awsProfile": "me", "proxyUrl": "http://proxy:3128/", "caBundle": "/etc/ca.pem"}
    for options in (stream_read(**given), batch_read(**given), WriteOptions.of(given)):
        client = pickle.loads(pickle.dumps(options)).client
        assert (client.aws_profile, client.proxy_url) == ("me", "http://proxy:3128/")
        assert client.ca_bundle == "/etc/ca.pem"


def test_secrets_are_in_no_text() -> None:
    secrets = {
        "awsAccessKey": "hush1", "awsSecretKey": "hush2", "sessionToken": "hush3",
        "roleArn": ROLE, "roleExternalId": "hush4", "proxyUrl": "http://me:hush5@proxy:3128",
    }  # fmt: skip
    for options in (stream_read(**secrets), batch_read(**secrets), WriteOptions.of(secrets)):
        client = options.client
        assert (client.aws_access_key_id, client.aws_secret_access_key) == ("hush1", "hush2")
        assert (client.aws_session_token, client.role_external_id) == ("hush3", "hush4")
        assert client.proxy_url == "http://me:hush5@proxy:3128"
        assert "hush" not in repr(options)
        assert "hush" not in str(options)


def test_a_secret_is_not_shown_when_it_is_refused() -> None:
    spec = next(spec for spec in OPTIONS if spec.secret)

    with pytest.raises(InvalidConfig) as refused:
        raise OptionReader({}, Use.WRITE).refusal(spec.setting, "nothing", "hush")

    assert spec.name in str(refused.value)
    assert "hush" not in str(refused.value)


def test_options_travel_by_pickle() -> None:
    positions = f'{{"{SHARD}": {{"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": "7"}}}}'
    for options in (
        stream_read(initialPosition=positions, awsAccessKey="key", awsSecretKey="secret"),
        batch_read(endingPosition=positions),
        WriteOptions.of({"streamName": "orders", "deadLetters": "/dead"}),
    ):
        assert pickle.loads(pickle.dumps(options)) == options
        assert hash(options) == hash(pickle.loads(pickle.dumps(options)))


# --- values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("1s", 1.0), ("1.5 s", 1.5), ("5m", 300.0), ("2H", 7200.0), ("1min", 60.0)],
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert stream_read(minFetchPeriod=text).read.fetch_period_seconds == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("41943040", 40 << 20),
        ("41943040b", 40 << 20),
        ("40960k", 40 << 20),
        ("40MB", 40 << 20),
        ("1gib", 1 << 30),
    ],
)
def test_a_size_is_in_powers_of_1024(text: str, size: int) -> None:
    assert stream_read(maxBufferedBytes=text).max_buffered_bytes == size


@pytest.mark.parametrize(("text", "rate"), [("2", 2_000_000), ("2.0", 2_000_000), ("0.5", 500_000)])
def test_a_fetch_rate_is_in_megabytes(text: str, rate: int) -> None:
    assert stream_read(maxFetchRate=text).read.max_fetch_bytes_per_second == rate


@for_all(text=st.text(max_size=30), option=st.sampled_from(sorted({spec.name for spec in OPTIONS})))
def test_any_text_is_taken_or_refused_by_name(text: str, option: str) -> None:
    for of in (StreamReadOptions.of, BatchReadOptions.of, WriteOptions.of):
        try:
            of({"streamName": "orders"} | {option: text})
        except InvalidConfig as error:
            assert f"option {option}" in str(error)  # noqa: PT017 - either outcome is right


# --- what is not there yet


@pytest.mark.parametrize("mode", ["efo", "EFO", "SubscribeToShard"])
def test_fan_out_reads_as_the_consumer_that_is_named(mode: str) -> None:
    options = StreamReadOptions.of(
        {"streamName": "orders", "kinesis.consumerType": mode, "kinesis.consumerName": "billing"}
    )

    assert options.read.fan_out_consumer == "billing"


# --- rules between options


@pytest.mark.parametrize("name", ["aggregation", "kinesis.sink.aggregationEnabled"])
def test_rows_are_aggregated_when_asked_for_up_to_the_size_of_the_kpl(name: str) -> None:
    assert WriteOptions.of({}).aggregate_bytes is None
    assert WriteOptions.of({name: "false"}).aggregate_bytes is None
    assert WriteOptions.of({name: "true"}).aggregate_bytes == 51_200
    assert WriteOptions.of({name: "true", "aggregationMaxSize": "1m"}).aggregate_bytes == 1_048_576


def test_extra_columns_come_in_the_order_asked_for() -> None:
    options = stream_read(extraColumns="MILLISBEHINDLATEST, subsequencenumber,encryptionType")

    assert options.read.extra_columns == ("millisBehindLatest", "subSequenceNumber", "encryptionType")


def test_idle_reads_are_never_more_frequent_than_busy_ones() -> None:
    assert stream_read(minFetchPeriod="5s").idle_fetch_period_seconds == 5.0
    assert "idleFetchPeriod" in refusal(
        StreamReadOptions.of, {"streamName": "orders", "minFetchPeriod": "5s", "idleFetchPeriod": "4s"}
    )


def test_more_threads_than_usual_keep_as_many_connections() -> None:
    assert stream_read(fetchThreads="64").client.max_connections == 64


def test_a_write_is_ordered_by_key_when_told_so() -> None:
    assert WriteOptions.of({"order": "KEY"}).order is PutOrder.KEY
    assert "option order: expected one of unordered, key, got 'shard'" in refusal(
        WriteOptions.of, {"order": "shard"}
    )


def test_dead_letters_of_a_write_go_to_another_stream() -> None:
    assert WriteOptions.of({"streamName": "orders", "deadLetters": "kinesis://dead"}).dead_letters
    for stream in ({"streamName": "orders"}, {"streamARN": ARN}):
        assert "another stream" in refusal(WriteOptions.of, {**stream, "deadLetters": "kinesis://orders"})


# --- documentation


def test_the_table_has_one_row_for_each_option() -> None:
    rows = [line for line in options_table().splitlines() if line.startswith("| `")]
    assert sorted(row.split("`")[1] for row in rows) == sorted(spec.name for spec in OPTIONS if spec.uses)
    assert {row.replace("\\|", "").count("|") for row in rows} == {3}


@pytest.mark.parametrize("use", Use)
def test_every_spelling_means_one_option(use: Use) -> None:
    spellings = [
        spelling.lower() for spec in OPTIONS if use in spec.uses for spelling in (spec.name, *spec.aliases)
    ]

    assert len(set(spellings)) == len(spellings)


def test_an_option_is_found_by_the_name_that_it_has_elsewhere() -> None:
    for name, row in {
        "initialPositionInStream": "initial_position", "maxRecords": "max_records_per_fetch",
        "failoverTimeMillis": "session_timeout_seconds", "shardSyncIntervalMillis": "shard_list_interval_seconds",
        "streamName": "stream", "applicationName": "app", "MaximumRetryAttempts": "retry_limit",
    }.items():  # fmt: skip
        [found] = [line for line in settings_table().splitlines() if f"`{name}`" in line]
        assert found.startswith(f"| `{row}` |")
    assert "`kinesis.startingPosition`" in options_table()


def test_a_name_that_is_used_elsewhere_is_no_spelling_of_another_option() -> None:
    for use in Use:
        rows = [option for option in OPTIONS if use in option.uses]
        ours = {name.lower(): row for row in rows for name in (row.name, *row.aliases)}
        for row in rows:
            for name in row.elsewhere:
                assert ours.get(name.rpartition(" ")[2].lower(), row) is row
