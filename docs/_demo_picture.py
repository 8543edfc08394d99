"""Takes the pictures of the home page: the web page of the running demo, in light and in dark.

``python docs/_demo_picture.py`` in the repository's folder; it needs a chromium on PATH.
"""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

_ASSETS: Final = Path(__file__).parent / "assets"
_DEMO: Final = (sys.executable, "-u", "-m", "examples.demo", "--web", "--kills", "0")
_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+/")
_SIZE: Final = {"width": 1060, "height": 690}
_AT_WORK: Final = """() => {
    const figure = name => [...document.querySelectorAll('dt')].find(each => each.textContent === name)
        ?.nextElementSibling.textContent;
    return figure('members') === '2' && Number.parseInt(figure('records/s')) > 0
        && document.querySelector('svg.strip rect');
}"""


def take_pictures() -> None:
    """Start the demo, and keep what its page shows while two consumers share the stream."""
    with subprocess.Popen(_DEMO, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 - our own
        assert demo.stdout is not None
        address = ""
        for line in demo.stdout:
            address = address or ((found := _ADDRESS.search(line)) and found[0]) or ""
            if " shares: " in line:
                break
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport=_SIZE)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.goto(address)
                page.wait_for_function(_AT_WORK)
                page.screenshot(path=_ASSETS / f"demo-{scheme}.png")
            browser.close()
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()


if __name__ == "__main__":
    take_pictures()
