"""``python -m kinesis_spout``: the command ``kinesis-spout``."""

from kinesis_spout.cli.app import main

if __name__ == "__main__":
    main()
