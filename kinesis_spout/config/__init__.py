from kinesis_spout.config.keywords import SpoutSettings
from kinesis_spout.config.option_table import Option, options
from kinesis_spout.config.refusals import SECRETS
from kinesis_spout.config.settings import SpoutConfig

__all__ = ["SECRETS", "Option", "SpoutConfig", "SpoutSettings", "options"]
