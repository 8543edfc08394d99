"""A process that consumes a stream through the plain door and prints what it acked, until its input ends.

Arguments: the settings, as JSON. It prints "ready" when it has started.
"""

import json
import select
import sys

from kinesis_spout.plain.record_spout import RecordSpout


def main() -> None:
    with RecordSpout(scheme="text", **json.loads(sys.argv[1])).open() as spout:
        print("ready", flush=True)  # noqa: T201
        while not select.select([sys.stdin], [], [], 0.005)[0]:
            emitted = spout.next_tuple()
            if emitted is not None:
                # First said, then acked: what is acked has been said.
                print(f"record {emitted.values}", flush=True)  # noqa: T201
                spout.ack(emitted.message_id)


if __name__ == "__main__":
    main()
