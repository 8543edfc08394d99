"""The errors a user of this package can meet.

    KinesisSpoutError
    ├── InvalidConfig            a setting is unknown, missing or out of range
    ├── MissingExtra             what was asked for needs a package that is not installed, or a newer one
    ├── KinesisError             what the Kinesis API answers
    │   ├── Throttled            retriable: slow down, at least 1 s
    │   ├── Unavailable          retriable: 5xx, time-outs, resets
    │   ├── KeyUnavailable       retriable, slowly: KMS refuses; the shard waits, nothing is skipped
    │   ├── ExpiredIterator      retriable: ask for a new iterator
    │   ├── InvalidIterator      retriable: GetRecords refused the iterator
    │   ├── AccessDenied         wrong or missing credentials or permissions
    │   ├── StreamNotFound       the stream does not exist
    │   ├── ShardNotFound        the shard is gone (trimmed away)
    │   └── DataLoss             a position is behind retention, or outside its shard
    ├── StoreError               ZooKeeper
    │   ├── StoreUnavailable     retriable: connection lost, session expired
    │   ├── CheckpointUnreadable stored progress cannot be read; never treated as "nothing stored"
    │   ├── ProgressLost         ZooKeeper no longer has what this consumer began with
    │   ├── StreamRecreated      the stored progress belongs to an older stream of the same name
    │   ├── CommitTooLarge       what must be stored in one transaction does not fit into one
    │   └── ConsumerAlive        refused, because a consumer of the application is running
    ├── StateError               keyed state of a topology
    │   ├── StateUnreadable      stored state is damaged or gone; never treated as "no state"
    │   └── StateUnavailable     retriable: its storage does not answer, or refuses
    ├── DeadLetterError          retriable: a dead letter could not be made durable
    ├── ProducerError            a producer did not put a record
    │   ├── InvalidRecord        data or a key that Kinesis never takes
    │   ├── BufferFull           retriable: a producer holds as much as it may
    │   ├── RecordDropped        its producer's buffer was full, and drops the oldest
    │   └── ProducerClosed       a put on a closed producer; or the record was left when it was closed
    ├── SpoolError               the producer's durable buffer cannot take a record, or be read
    │   └── SpoolDamaged         what it stores is damaged; names what can be saved
    ├── HandlerKilledWorker      the user's handler ended its Python worker, or outlived the message time-out
    ├── SpoutClosed              a call on a spout that was closed
    ├── HandlerBroken            (spark.tasks.jobs) the handler cannot be loaded on the executors
    ├── SparkGone                (spark.tasks.jobs) the SparkContext was stopped, or its JVM has ended
    ├── TooManyFailures          (spark.record_outcomes) more records failed than are kept for another delivery
    ├── ComponentFailed          (storm.hosting) a component in another language died, hung or erred
    ├── NotOfTheProtocol         (multilang.messages) a frame that is no message of the multilang protocol
    ├── UnsendableValue          (multilang.sendable) a value that a component's messages cannot carry
    └── UnwritableRow            (structured.write) a row that the sink can never write

`kinesis_spout.kinesis.retry_policy` says what follows from each error of Kinesis, and how long the call is
retried.
"""


class KinesisSpoutError(Exception):
    """Root of every error raised on purpose by this package."""

    retriable = False
    exit_code = 1
    """The exit code of the command line."""
    remedy = ""
    """The advice that ends the message, if any."""


class InvalidConfig(KinesisSpoutError, ValueError):  # noqa: N818 - the names say what happened
    """A setting is unknown, missing or out of range. Names the field, the value, and what is allowed."""

    exit_code = 2


def refuse_other_kind(where: str, expected: str, given: object, *has: str) -> None:
    """Refuse an argument that lacks an attribute, and so is of another kind. Its text may be secret: not shown.

    Raises:
        InvalidConfig: ``where`` names the argument.
    """
    if not all(hasattr(given, each) for each in has):
        raise InvalidConfig(f"{where}: expected {expected}, got {given_kind(given)}")


def given_kind(given: object) -> str:
    """Name the kind of an argument: "None", "a str", "an int"."""
    if given is None:
        return "None"
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


class MissingExtra(KinesisSpoutError, ImportError):  # noqa: N818
    """A package that the request needs is not installed, or too old. Names the extra to install."""

    exit_code = 2


class KinesisError(KinesisSpoutError):
    """An answer of the Kinesis API that is not a result."""

    exit_code = 3


class Throttled(KinesisError):  # noqa: N818
    """Too many calls or bytes. Wait at least 1 s (5 s after a reply of 10 MiB); the iterator stays valid."""

    retriable = True


class Unavailable(KinesisError):  # noqa: N818
    """The service or the way to it failed. Retry with jitter, without limit, visibly."""

    retriable = True


class KeyUnavailable(KinesisError):  # noqa: N818
    """KMS does not give the stream's key. The shard pauses and is tried again slowly; never skipped."""

    retriable = True


class ExpiredIterator(KinesisError):  # noqa: N818
    """An iterator lives five minutes. Ask for a new one after the last *fetched* record."""

    retriable = True


class InvalidIterator(KinesisError):  # noqa: N818
    """GetRecords refused the iterator as invalid. A fresh iterator is the remedy."""

    retriable = True


class AccessDenied(KinesisError):  # noqa: N818
    """Credentials are missing, wrong, or lack a permission."""


class StreamNotFound(KinesisError):  # noqa: N818
    """The stream does not exist in this account and region."""


class ShardNotFound(KinesisError):  # noqa: N818
    """The shard no longer exists although its stream does: retention trimmed it away."""


class DataLoss(KinesisError):  # noqa: N818
    """A position to read from is behind the stream's retention, or outside its shard."""


class StoreError(KinesisSpoutError):
    """ZooKeeper did not do what was asked."""

    exit_code = 4


class StoreUnavailable(StoreError):  # noqa: N818
    """The connection or session to ZooKeeper is lost; retry after reconnecting."""

    retriable = True


class CheckpointUnreadable(StoreError):  # noqa: N818
    """Stored progress cannot be read. Reading from the start instead would repeat or lose data."""


class ProgressLost(StoreError):  # noqa: N818
    """ZooKeeper no longer has what this running consumer began with. The consumer does not begin again."""


class StreamRecreated(StoreError):  # noqa: N818
    """The stored progress belongs to a stream that was deleted; a new one has its name."""


class CommitTooLarge(StoreError):  # noqa: N818
    """The data to store together is more than ZooKeeper takes in one request. Nothing is stored."""


class ConsumerAlive(StoreError):  # noqa: N818
    """Refused: a consumer of this application is running, and would overwrite or miss the change."""

    exit_code = 5


class StateError(KinesisSpoutError):
    """The keyed state of a topology could not be read or kept."""

    exit_code = 4


class StateUnreadable(StateError):  # noqa: N818
    """Stored keyed state cannot be read. Beginning with empty state instead would count wrongly."""


class StateUnavailable(StateError):  # noqa: N818
    """The storage of keyed state does not answer, or refuses."""

    retriable = True


class DeadLetterError(KinesisSpoutError):
    """A dead letter could not be made durable. The checkpoint waits until it is (invariant 6)."""

    retriable = True
    exit_code = 6


class ProducerError(KinesisSpoutError):
    """A producer did not put a record."""


class InvalidRecord(ProducerError, ValueError):  # noqa: N818
    """Data or a key that no stream takes. Says what is wrong, without the data."""


class BufferFull(ProducerError):  # noqa: N818
    """A producer holds as many records as it may, and does not wait for room, or waited in vain."""

    retriable = True


class RecordDropped(ProducerError):  # noqa: N818
    """A producer dropped the record, the oldest it held, to have room for a newer one."""


class ProducerClosed(ProducerError):  # noqa: N818
    """The producer was closed: it takes no record, and does not put what it still held at the end."""


class SpoolError(KinesisSpoutError):
    """The producer's durable buffer cannot take or read a record: its disk is full, or is not writable."""


class SpoolDamaged(SpoolError):  # noqa: N818
    """Records in a producer's durable buffer are lost. Says how many, and which file has what is left of them."""


class HandlerKilledWorker(KinesisSpoutError):  # noqa: N818
    """A handler ended its Python worker process, or outlived the message time-out."""


class SpoutClosed(KinesisSpoutError):  # noqa: N818
    """A call on a spout that was closed."""
