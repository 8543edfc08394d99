"""What a component is told of itself in the hand-shake, by the keys that Storm uses.

Source: Storm's ``TopologyContext.toJSONString``, ``Grouping`` of its ``storm.thrift``, and which keys pystorm and
streamparse read.
"""

from collections.abc import Mapping
from typing import Any, Final

from kinesis_spout.storm.components.given import TaskContext
from kinesis_spout.storm.components.tuples import Stream
from kinesis_spout.storm.multilang.frames import Codec
from kinesis_spout.storm.multilang.sendable import UnsendableValue

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"
SUBPROCESS_TIMEOUT: Final = "topology.subprocess.timeout.secs"
MAX_PENDING: Final = "topology.shellbolt.max.pending"
TICK_EVERY: Final = "topology.tick.tuple.freq.secs"


def handshake_conf(
    conf: Mapping[str, Any], context: TaskContext, own: Mapping[str, Any], codec: Codec
) -> dict[str, Any]:
    """Give the configuration as a component sees it.

    Args:
        conf: the topology's. Values that no frame can carry, such as objects of yours, are left out.
        context: which task it is.
        own: what is set for this component alone; None leaves a name out.
        codec: how it is written.
    """
    told = {"topology.name": context.topology, "topology.debug": False, **conf, **own}
    return {
        name: value for name, value in told.items() if value is not None and _is_sendable(name, value, codec)
    }


def handshake_context(context: TaskContext, streams: Mapping[str, Stream]) -> dict[str, Any]:
    """Give the context as a component sees it.

    Args:
        context: which task it is, and who is around it.
        streams: its own.
    """
    tasks = {str(task): component for component, every in context.tasks.items() for task in every}
    return {
        "taskid": context.task,
        "componentid": context.component,
        "task->component": tasks or {str(context.task): context.component},
        "streams": list(streams),
        "stream->outputfields": {name: list(stream.fields) for name, stream in streams.items()},
        "stream->target->grouping": {
            stream: {target: _grouping(context, (context.component, stream, target)) for target in targets}
            for stream, targets in context.targets.items()
        },
        "source->stream->fields": {
            source: {stream: list(fields) for stream, fields in of_source.items()}
            for source, of_source in context.sources.items()
        },
        "source->stream->grouping": {
            source: {stream: _grouping(context, (source, stream, context.component)) for stream in of_source}
            for source, of_source in context.sources.items()
        },
    }


def _grouping(context: TaskContext, subscription: tuple[str, str, str]) -> dict[str, Any]:
    """Give a grouping in Storm's words. To Storm, ``global`` is grouping by no field, and shuffle spreads."""
    name, fields = context.groupings[subscription]
    if name == "rebalance":
        return {"type": "SHUFFLE"}
    if name in ("fields", "global"):
        return {"type": "FIELDS", "fields": list(fields)}
    return {"type": "CUSTOM_SERIALIZED" if name in ("partial_key", "custom") else name.upper()}


def _is_sendable(name: str, value: object, codec: Codec) -> bool:
    try:
        codec.encode({name: value}, "")
    except UnsendableValue:
        return False
    return True
