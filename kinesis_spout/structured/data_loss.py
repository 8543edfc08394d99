"""Lost records: an error, or a warning, depending on ``failOnDataLoss``."""

import logging

from kinesis_spout.model.errors import DataLoss, KinesisSpoutError

_log = logging.getLogger(__name__)


def lose(
    text: str,
    *,
    fail: bool,
    kind: type[KinesisSpoutError] = DataLoss,
    so_that: str = "to go on without them",
    cause: KinesisSpoutError | None = None,
) -> None:
    """Raise ``kind`` if ``fail`` (``failOnDataLoss``) is set, else log a warning.

    ``so_that`` is what setting the option to false achieves.
    """
    if fail:
        raise kind(f"{text}. Set failOnDataLoss to false {so_that}") from cause
    _log.warning("%s; going on without what is lost, because failOnDataLoss is false", text)
