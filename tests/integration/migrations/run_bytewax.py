"""Runs the dataflow of bytewax over what the stream holds: python run_bytewax.py STREAM. It has no kinesis_spout."""

import sys

from before import Kinesis, totals
from bytewax.testing import run_main

run_main(totals(Kinesis(sys.argv[1], until_caught_up=True)))
