"""The options that every command has that runs on Spark."""

from pathlib import Path
from typing import Annotated

import typer

Master = Annotated[
    str | None,
    typer.Option(
        help='Where Spark runs: "local[2]", "spark://...". Unset: as spark-submit or spark-defaults say.',
        show_default=False,
    ),
]
PyFiles = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A .py or .zip file to send to the executors; repeatable."),
]
FailOnDeadLetters = Annotated[
    bool,
    typer.Option("--fail-on-dead-letters", help="End with exit code 7 if records were dead-lettered."),
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON on standard output each second.")
]
