"""``python -m examples.demo``."""

import typer

from examples.demo.run import demo

if __name__ == "__main__":
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("demo")(demo)
    app(prog_name="python -m examples.demo")
