"""Has the site draw its diagrams with a script of its own: a hook of MkDocs.

The theme would have each reader's browser fetch Mermaid from another server. `make docs` installs it with npm;
where it could not, the diagrams stay text.
"""

from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from pymdownx.superfences import fence_code_format

_INSTALLED: Final = Path(__file__).parent / ".mermaid"
_SCRIPT: Final = "node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
_IN_SITE: Final = "assets/mermaid.js"
_HEADS: Final = """<script>
const drawn = mermaid.initialize;
const color = "var(--md-mermaid-edge-color)";
const heads = ` marker[id$=head] path { fill: ${color}; stroke: ${color}; }`;
mermaid.initialize = given => drawn({...given, themeCSS: given.themeCSS + heads});
</script>"""
"""The theme does not reach the heads of arrows between participants, which are then black in the dark, too."""
_DRAWN: Final = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}


def on_config(config: MkDocsConfig) -> None:
    """Mark what is to be drawn."""
    if _script() is not None:
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [_DRAWN]}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Put the script into the site."""
    script = _script()
    if script is not None:
        files.append(File.generated(config, _IN_SITE, abs_src_path=str(script)))


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Load the script where there is something to draw: it is large."""
    if '<pre class="mermaid">' not in html:
        return html
    return f'{html}\n<script src="{get_relative_url(_IN_SITE, page.url)}"></script>{_HEADS}'


def _script() -> Path | None:
    return next(iter(sorted(_INSTALLED.glob(f"*/{_SCRIPT}"), reverse=True)), None)
