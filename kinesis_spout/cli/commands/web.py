"""``kinesis-spout web``: the page."""

import logging
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.cli.output import note
from kinesis_spout.cli.shared_options import configured
from kinesis_spout.model.extras import check_extra
from kinesis_spout.settings import SpoutConfig


@configured("dead_letters", optional=("app", "stream"))
def web(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:8080",
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let visitors pause, resume, drain, redrive, dismiss and reset."
        ),
    ] = False,
    show_data: Annotated[bool, typer.Option("--show-data", help="Show the data of records.")] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Do not show the values of this field in JSON data; repeatable."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the token that visitors have to give.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front checks who visits, and says it.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser here.")] = False,
) -> None:
    """Serve a page to watch and steer applications.

    It runs until Ctrl-C, and shows one application (--app and --stream), or all of this ZooKeeper. It reads
    ZooKeeper, the stream and the dead letters, so it also works while no consumer is alive. Without
    --allow-changes it changes nothing; without --show-data it shows no data of records. To serve it beyond this
    machine, add --token-file or --behind-proxy.
    """
    check_extra("web", "web", ("starlette", "uvicorn", "jinja2"))
    from kinesis_spout.web.app import serve  # noqa: PLC0415
    from kinesis_spout.web.page_settings import PageSettings  # noqa: PLC0415 - the extra may be missing

    settings = PageSettings.of(
        http,
        token_file=token_file,
        allow_changes=allow_changes,
        show_data=show_data,
        masks=frozenset(mask or ()),
        behind_proxy=behind_proxy,
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kinesis_spout.operations.audit").setLevel(logging.INFO)

    def ready(address: str) -> None:
        note(f"the page is at {address}")
        if open_browser:
            webbrowser.open(address)

    serve(ctx.obj, config, settings, ready)
