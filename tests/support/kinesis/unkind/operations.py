"""The operations of the API over an account, with the behaviours that change what is answered."""

from collections import deque
from typing import Any, Final

from tests.support.kinesis.unkind.account import (
    ITERATOR_SECONDS,
    MOST_CONSUMERS,
    Account,
    AwsError,
    Shard,
    Stream,
    record_bytes,
)
from tests.support.kinesis.unkind.behaviours import BEFORE, Behaviour, Call, Switch, Table

_DAY_MILLIS: Final = 86_400_000
_READS_A_SECOND: Final = 5
_READ_BYTES_A_SECOND: Final = 2 << 20
_FULL_READ_BYTES: Final = 10 << 20
_FULL_READ_SECONDS: Final = 5.0
_WRITES_A_SECOND: Final = 1_000
_WRITE_BYTES_A_SECOND: Final = 1 << 20
_SUMMARIES_A_SECOND: Final = 20
_LISTS_A_SECOND: Final = 100
_OVER_THROUGHPUT: Final = "ProvisionedThroughputExceededException"


class Operations:
    """Answers calls. Mutable, for one thread."""

    def __init__(self, account: Account, table: Table) -> None:
        self.account = account
        self.table = table
        self.pages: dict[str, dict[str, Any]] = {}
        """The last page of each shard that was read, by stream and shard."""
        self._asked: dict[str, deque[float]] = {}
        """When calls with a limit of the account's or the stream's were made."""

    def call(self, operation: str, region: str, request: dict[str, Any]) -> Call:
        """Say what a call is about, as far as it says so itself."""
        try:
            if "ShardIterator" in request:
                stream, shard, *_ = self.account.iterated(request["ShardIterator"])
                return Call(operation, stream.name, shard.id)
            arn = request.get("ConsumerARN", request.get("StreamARN", ""))
            name = arn.partition(":stream/")[2].partition("/")[0] or request.get("StreamName", "")
            return Call(operation, name, request.get("ShardId", ""))
        except AwsError:
            return Call(operation, "", "")

    def refuse(self, call: Call) -> None:
        """Raise an error that is switched on."""
        switch = self.table.drawn(call, *BEFORE)
        if switch is not None:
            raise told_error(switch)

    def answer(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        self.refuse(call)
        method = getattr(self, f"_{call.operation}", None)
        if method is None:
            raise AwsError("UnknownOperationException", call.operation)
        reply: dict[str, Any] = method(call, region, request)
        return reply

    def active(self, region: str, request: dict[str, Any]) -> Stream:
        """Return a stream whose records can be read and put."""
        stream = self.account.stream(region, request)
        if stream.status(self.account.now()) == "CREATING":
            raise AwsError("ResourceInUseException", f"Stream {stream.name} is not ACTIVE: it is CREATING.")
        return stream

    def limit(self, call: Call, kept: deque[float], most: int, code: str = _OVER_THROUGHPUT) -> None:
        """Raise an error for a call that is one too many in this second, where limits are on."""
        now = self.account.now()
        while kept and now - kept[0] >= 1:
            kept.popleft()
        switch = self.table.is_on(call, Behaviour.LIMITS)
        if switch is not None and len(kept) >= most:
            self.table.count(switch)
            raise AwsError(code, f"Rate exceeded for {call.operation}.")
        kept.append(now)

    # Streams

    def _CreateStream(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        self.account.create(region, request["StreamName"], request.get("ShardCount", 4))
        return {}

    def _DeleteStream(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        self.account.delete(self.account.stream(region, request))
        return {}

    def _ListStreams(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        after, most = request.get("ExclusiveStartStreamName", ""), request.get("Limit", 100)
        names = sorted(name for where, name in self.account.streams if where == region and name > after)
        return {"StreamNames": names[:most], "HasMoreStreams": len(names) > most}

    def _DescribeStreamSummary(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        self.limit(call, self._recent("summaries"), _SUMMARIES_A_SECOND, "LimitExceededException")
        stream = self.account.stream(region, request)
        switch = self.table.drawn(call, Behaviour.UPDATING)
        status = stream.status(self.account.now())
        return {
            "StreamDescriptionSummary": {
                "StreamName": stream.name,
                "StreamARN": stream.arn,
                "StreamStatus": status if switch is None else switch.how.get("status", "UPDATING"),
                "StreamModeDetails": {"StreamMode": stream.mode},
                "RetentionPeriodHours": 24,
                "StreamCreationTimestamp": stream.created,
                "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
                "EncryptionType": "NONE",
                "OpenShardCount": len(stream.open_shards()),
                "ConsumerCount": len(stream.consumers),
                "MaxRecordSizeInKiB": stream.max_record_kib,
            }
        }

    def _ListShards(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        most = request.get("MaxResults", 1_000)
        token = request.get("NextToken")
        if token is not None:
            if request.keys() & {"StreamName", "StreamARN"}:
                raise AwsError(
                    "InvalidArgumentException", "NextToken and StreamName cannot be provided together."
                )
            if self.table.drawn(call, Behaviour.EXPIRED_TOKENS):
                raise AwsError("ExpiredNextTokenException", "The specified NextToken is expired.")
            shards, name = self.account.listing_on(token)
        else:
            stream = self.account.stream(region, request)
            self.limit(call, self._recent(stream.arn), _LISTS_A_SECOND, "LimitExceededException")
            if stream.status(self.account.now()) == "CREATING":
                raise AwsError("ResourceInUseException", f"Stream {stream.name} is CREATING.")
            shards, name = stream.listed(), stream.name
            if stream.old_shards != shards and self.table.drawn(call, Behaviour.OLD_LISTS):
                shards = stream.old_shards
        return self.account.listing(name, shards, most)

    def _SplitShard(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream = self._changeable(call, region, request)
        shard = self.account.shard(stream, request["ShardToSplit"])
        self.account.split(stream, shard, int(request["NewStartingHashKey"]))
        return {}

    def _MergeShards(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream = self._changeable(call, region, request)
        names = (request["ShardToMerge"], request["AdjacentShardToMerge"])
        self.account.merge(stream, *(self.account.shard(stream, name) for name in names))
        return {}

    def _changeable(self, call: Call, region: str, request: dict[str, Any]) -> Stream:
        stream = self.active(region, request)
        if self.table.drawn(call, Behaviour.UPDATING):
            raise AwsError("ResourceInUseException", f"Stream {stream.name} is not ACTIVE: it is UPDATING.")
        return stream

    # Records

    def _GetShardIterator(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream = self.active(region, request)
        shard = self.account.shard(stream, request["ShardId"])
        self.limit(call, shard.iterators, _READS_A_SECOND)
        number = self.account.start(
            stream,
            shard,
            request["ShardIteratorType"],
            request.get("StartingSequenceNumber"),
            request.get("Timestamp"),
        )
        return {"ShardIterator": self.account.iterator(stream, shard, number)}

    def _GetRecords(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream, shard, number, born = self.account.iterated(request["ShardIterator"])
        expires = self.table.is_on(call, Behaviour.EXPIRED_ITERATORS)
        if expires is not None and born < expires.since + self.account.ahead_seconds and expires.draw():
            self.table.happened[expires.behaviour] += 1
            raise AwsError(
                "ExpiredIteratorException",
                f"Iterator expired. It was created more than {ITERATOR_SECONDS} s ago.",
            )
        self._limit_reads(call, shard)
        page = self.account.page(shard, number, request.get("Limit", 10_000))
        key = f"{stream.name}/{shard.id}"
        if (others := self._page_of_others(key)) and self.table.drawn(call, Behaviour.PAGE_OF_OTHERS):
            return others
        empty = page and self.table.drawn(call, Behaviour.EMPTY_PAGES)
        if empty:
            page = []
        elif len(page) > 1 and self.table.drawn(call, Behaviour.FEWER_RECORDS):
            page = page[: len(page) // 2]
        reply = self.account.reply(stream, shard, number, page)
        if empty:
            reply["MillisBehindLatest"] = int(empty.number("behind_millis", _DAY_MILLIS))
        if page:
            self.pages[key] = reply
        size = sum(record_bytes(record) for record in page)
        shard.read_again_at = self.account.now() + (
            _FULL_READ_SECONDS if size >= _FULL_READ_BYTES * 0.9 else size / _READ_BYTES_A_SECOND
        )
        if shard.end is None and self.table.drawn(call, Behaviour.NO_NEXT_ITERATOR):
            reply = {name: value for name, value in reply.items() if name != "NextShardIterator"}
        return reply

    def page_of_others(self, call: Call) -> dict[str, Any] | None:
        return self._page_of_others(f"{call.stream}/{call.shard_id}")

    def _page_of_others(self, key: str) -> dict[str, Any] | None:
        others = [page for name, page in self.pages.items() if name != key]
        return others[-1] if others else None

    def _limit_reads(self, call: Call, shard: Shard) -> None:
        switch = self.table.is_on(call, Behaviour.LIMITS)
        if switch is not None and self.account.now() < shard.read_again_at:
            self.table.count(switch)
            raise AwsError(_OVER_THROUGHPUT, f"Rate exceeded for shard {shard.id}: bytes.")
        self.limit(call, shard.reads, _READS_A_SECOND)

    def _PutRecord(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        reply = self._PutRecords(call, region, {**request, "Records": [request]})["Records"][0]
        if "ErrorCode" in reply:
            raise AwsError(reply["ErrorCode"], reply["ErrorMessage"])
        return dict(reply)

    def _PutRecords(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream = self.active(region, request)
        records = request["Records"]
        self.account.check_puts(stream, records)
        placed = [
            self.account.shard_for(stream, record["PartitionKey"], record.get("ExplicitHashKey"))
            for record in records
        ]
        partly = self.table.drawn(call, Behaviour.PARTLY_REFUSED)
        limits = self.table.is_on(call, Behaviour.LIMITS)
        refused_of = 0 if partly is None else max(1, partly.share("share", 0.5, len(records)))
        answers: list[dict[str, Any]] = []
        for at, (record, shard) in enumerate(zip(records, placed, strict=True)):
            # Spread over the call, so that records of one key are refused between others that are not.
            is_refused = at * refused_of // len(records) != (at + 1) * refused_of // len(records)
            if is_refused or (limits is not None and self._is_full(shard, record, limits)):
                message = f"Rate exceeded for shard {shard.id} in stream {stream.name} under account."
                answers.append({"ErrorCode": _OVER_THROUGHPUT, "ErrorMessage": message})
                continue
            number = self.account.put(stream, shard, record["Data"], record["PartitionKey"])
            answers.append({"SequenceNumber": number, "ShardId": shard.id, "EncryptionType": "NONE"})
        failed = sum("ErrorCode" in answer for answer in answers)
        return {"FailedRecordCount": failed, "EncryptionType": "NONE", "Records": answers}

    def _is_full(self, shard: Shard, record: dict[str, Any], limits: Switch) -> bool:
        second, records, size = shard.written
        now = self.account.now() // 1
        if second != now:
            second, records, size = now, 0, 0
        added = record_bytes(record)
        if records >= _WRITES_A_SECOND or (size and size + added > _WRITE_BYTES_A_SECOND):
            self.table.count(limits)
            return True
        shard.written = second, records + 1, size + added
        return False

    # Consumers of fan-out

    def consumer(self, region: str, request: dict[str, Any]) -> tuple[Stream, dict[str, Any]]:
        arn = request.get("ConsumerARN", "")
        stream = self.account.stream(region, {"StreamARN": arn} if arn else request)
        for found in stream.consumers.values():
            if found["ConsumerARN"] == arn or found["ConsumerName"] == request.get("ConsumerName"):
                if found["ConsumerStatus"] == "CREATING" and self.account.now() >= found["ready_at"]:
                    found["ConsumerStatus"] = "ACTIVE"
                if found["ConsumerStatus"] != "DELETING" or self.account.now() < found["ready_at"]:
                    return stream, found
        wanted = arn or request.get("ConsumerName")
        raise AwsError(
            "ResourceNotFoundException", f"Consumer {wanted} under stream {stream.name} not found."
        )

    def _RegisterStreamConsumer(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream = self.active(region, request)
        try:
            self.consumer(region, request)
        except AwsError:
            pass
        else:
            raise AwsError("ResourceInUseException", f"Consumer {request['ConsumerName']} already exists.")
        if len(stream.consumers) >= MOST_CONSUMERS:
            raise AwsError("LimitExceededException", f"A stream has at most {MOST_CONSUMERS} consumers.")
        now = self.account.now()
        arn = f"{stream.arn}/consumer/{request['ConsumerName']}:{int(now) + len(stream.consumers)}"
        made = stream.consumers[request["ConsumerName"]] = {
            "ConsumerName": request["ConsumerName"],
            "ConsumerARN": arn,
            "ConsumerStatus": "CREATING",
            "ConsumerCreationTimestamp": round(now, 3),
            "ready_at": now + stream.busy_seconds,
        }
        return {"Consumer": _shown_consumer(made)}

    def _DescribeStreamConsumer(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream, found = self.consumer(region, request)
        return {"ConsumerDescription": _shown_consumer(found) | {"StreamARN": stream.arn}}

    def _ListStreamConsumers(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream = self.active(region, request)
        found = [_shown_consumer(each) for each in stream.consumers.values()]
        first = int(request.get("NextToken", "0"))
        following = {"NextToken": str(first + 7)} if len(found) > first + 7 else {}
        return {"Consumers": found[first : first + 7], **following}

    def _DeregisterStreamConsumer(self, call: Call, region: str, request: dict[str, Any]) -> dict[str, Any]:
        stream, found = self.consumer(region, request)
        found["ConsumerStatus"], found["ready_at"] = "DELETING", self.account.now() + stream.busy_seconds
        if not stream.busy_seconds:
            del stream.consumers[found["ConsumerName"]]
        return {}

    def _recent(self, name: str) -> deque[float]:
        return self._asked.setdefault(name, deque())


def told_error(switch: Switch) -> AwsError:
    how = switch.how
    return AwsError(
        str(how.get("code", "InternalFailure")),
        str(how.get("message", "as told")),
        int(how.get("status", 400)),
    )


def _shown_consumer(consumer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in consumer.items() if name != "ready_at"}
