"""``python -m examples.demo_topology``."""

import typer

from examples.demo_topology.run import demo_topology

if __name__ == "__main__":
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("demo-topology")(demo_topology)
    app(prog_name="python -m examples.demo_topology")
