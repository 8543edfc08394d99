"""Records that are gone before they were read: an error, or a warning, as ``failOnDataLoss`` says."""

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
    """Say that records are lost.

    Args:
        text: what was expected, and what was found.
        fail: ``failOnDataLoss``. If it is off, the loss is logged, and the caller goes on.
        kind: of the error.
        so_that: what it is good for to set the option to false.
        cause: of the error.

    Raises:
        KinesisSpoutError: of ``kind``, if ``fail`` is set.
    """
    if fail:
        raise kind(f"{text}. Set failOnDataLoss to false {so_that}") from cause
    _log.warning("%s; going on without what is lost, because failOnDataLoss is false", text)
