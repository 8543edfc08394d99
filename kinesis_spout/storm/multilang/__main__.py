"""``python -m kinesis_spout.storm.multilang``: components to be started by a host."""

import argparse
import sys

from kinesis_spout.storm.multilang.spout_component import command_line


def main() -> int:
    """Run the component that the arguments name; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kinesis_spout.storm.multilang")
    components = parser.add_subparsers(required=True, metavar="COMPONENT")
    spout = components.add_parser("spout", help="read a Kinesis stream for a topology", allow_abbrev=False)
    command_line.add_options(spout)
    arguments, unknown = parser.parse_known_args()
    if unknown:
        spout.error(command_line.why_refused(unknown))
    return command_line.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
