"""The second consumer: a loop in plain Python, which shares the shards with the one on Spark.

It is started as ``python -m examples.demo.consumers.plain SETTINGS`` and stops in order when its standard input
ends.
"""

import logging
import threading
import time

from examples.demo.consumers.settings import STATUS_SECONDS, ConsumerSettings, ConsumerStatus, input_ended
from kinesis_spout import KinesisSpout


def consume(settings: ConsumerSettings) -> None:
    """Handle one record after another until standard input ends."""
    handler = settings.handler()
    status = ConsumerStatus(joined_at=time.monotonic())
    status.tell(settings)
    with KinesisSpout(config=settings.spout_config()).open() as tuples:
        watch = threading.Thread(target=_watch, args=(tuples, status, settings), daemon=True)
        watch.start()
        for message_id, record in tuples:
            try:
                handler(record)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises fails its record
                tuples.fail(message_id, error)
            else:
                tuples.ack(message_id)
        watch.join()


def _watch(tuples: KinesisSpout, status: ConsumerStatus, settings: ConsumerSettings) -> None:
    """Say how it is, and end the loop when standard input ends."""
    while not input_ended(STATUS_SECONDS):
        status.now(tuples.shards(), tuples.last_error).tell(settings)
    tuples.deactivate()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    consume(ConsumerSettings.of_command_line())
