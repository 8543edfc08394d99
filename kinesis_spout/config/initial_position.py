"""The setting that says where the first start of an application begins, as a place to read from."""

from kinesis_spout.config.refusals import refuse
from kinesis_spout.settings.positions import NotAPosition, parse_position_of_all_shards
from shard_state import Position


def parse_initial_position(text: str) -> Position:
    """Give the place that the text names.

    Raises:
        InvalidConfig: it names none.
    """
    try:
        return parse_position_of_all_shards(text)
    except NotAPosition as error:
        refuse("initial_position", text, error.expected)
