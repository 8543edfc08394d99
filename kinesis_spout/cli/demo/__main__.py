"""``python -m kinesis_spout.cli.demo``."""

import typer

from kinesis_spout.cli.demo.run import demo

if __name__ == "__main__":
    typer.run(demo)
