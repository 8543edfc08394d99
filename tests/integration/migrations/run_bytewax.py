"""Runs the dataflow of bytewax over what a stream holds, in a Python without kinesis_spout.

python run_bytewax.py STREAM
"""

import sys

from before import Kinesis, totals
from bytewax.testing import run_main

run_main(totals(Kinesis(sys.argv[1], until_caught_up=True)))
