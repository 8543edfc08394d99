"""What a picture says of the counts of a component."""

from typing import Final

from kinesis_spout.storm.running.component_counts import ComponentCounts

_WHOLE_MS: Final = 100.0
"""A latency from here on is shown without decimals."""


def count_rows(counts: ComponentCounts, *, is_spout: bool) -> list[tuple[str, str]]:
    """Give the name and the number of each count. What is an exception is left out while there is none."""
    rows = [] if is_spout else [("executed", counts.executed)]
    rows += [("emitted", counts.emitted), ("acked", counts.acked), ("failed", counts.failed)]
    rows += [
        (name, count)
        for name, count in (("timed out", counts.timed_out), ("acked twice", counts.acked_twice))
        if count
    ]
    shown = [(name, f"{count:,}") for name, count in rows]
    latency = latency_text(counts)
    if latency is not None:
        shown.append(("complete latency" if is_spout else "latency", latency))
    return shown


def latency_text(counts: ComponentCounts) -> str | None:
    """Say how long a call of ``execute`` took on average, or a spout's tuple until its ack; None without any."""
    latency_ms = counts.complete_latency_ms or counts.latency_ms
    if not latency_ms:
        return None
    return f"{latency_ms:,.0f} ms" if latency_ms >= _WHOLE_MS else f"{latency_ms:.3g} ms"
