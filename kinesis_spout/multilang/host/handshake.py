"""What a component is told of itself in the hand-shake, by the keys that Storm uses.

Source: Storm's ``TopologyContext.toJSONString``, and which keys pystorm and streamparse read of it.
"""

from collections.abc import Mapping
from typing import Any, Final

from kinesis_spout.multilang.sendable import UnsendableValue, refuse_unsendable
from kinesis_spout.topology.components.context import TaskContext
from kinesis_spout.topology.components.output import Stream

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"
SUBPROCESS_TIMEOUT: Final = "topology.subprocess.timeout.secs"
MAX_PENDING: Final = "topology.shellbolt.max.pending"
TICK_EVERY: Final = "topology.tick.tuple.freq.secs"


def handshake_conf(conf: Mapping[str, Any], context: TaskContext, own: Mapping[str, Any]) -> dict[str, Any]:
    """Give the configuration as a component sees it.

    Args:
        conf: the topology's. Values that no frame can carry, such as objects of yours, are left out.
        context: which task it is.
        own: what is set for this component alone; None leaves a name out.
    """
    told = {"topology.name": context.topology, "topology.debug": False, **conf, **own}
    return {name: value for name, value in told.items() if value is not None and _is_sendable(value)}


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
        # Which grouping a subscriber chose is its own business here; Storm tells it.
        "stream->target->grouping": {
            stream: {target: {} for target in targets} for stream, targets in context.targets.items()
        },
        "source->stream->fields": {
            source: {stream: list(fields) for stream, fields in of_source.items()}
            for source, of_source in context.sources.items()
        },
        "source->stream->grouping": {
            source: {stream: {} for stream in of_source} for source, of_source in context.sources.items()
        },
    }


def _is_sendable(value: object) -> bool:
    try:
        refuse_unsendable([value], "", bytes_too=False)
    except UnsendableValue:
        return False
    return True
