"""The options as the documentation shows them."""

from kinesis_spout.structured.options.tables.specs import OptionSpec, Use
from kinesis_spout.structured.options.tables.table import OPTIONS


def markdown_table(for_: Use) -> str:
    """Give a Markdown table of the options of one use, in the order of ``OPTIONS``; always the same text."""
    rows = [_row(spec) for spec in OPTIONS if for_ in spec.uses]
    head = ["| option | also spelled | takes | default | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


def _row(spec: OptionSpec) -> str:
    aliases = ", ".join(f"`{alias}`" for alias in spec.aliases)
    default = spec.unset if spec.default is None else f"`{spec.default}`"
    cells = (f"`{spec.name}`", aliases, spec.allowed, default, spec.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
