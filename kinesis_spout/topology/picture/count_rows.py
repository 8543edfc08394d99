"""What a picture says of the counts of a component."""

from kinesis_spout.topology.running.component_counts import ComponentCounts


def count_rows(counts: ComponentCounts, *, is_spout: bool) -> list[tuple[str, str]]:
    """Give the name and the number of each count. What is an exception is left out while there is none."""
    rows = [] if is_spout else [("executed", counts.executed)]
    rows.append(("emitted", counts.emitted))
    if not is_spout:
        rows += [("acked", counts.acked), ("failed", counts.failed)]
    rows += [
        (name, count)
        for name, count in (("timed out", counts.timed_out), ("acked twice", counts.acked_twice))
        if count
    ]
    shown = [(name, f"{count:,}") for name, count in rows]
    if counts.sampled:
        shown.append(("latency", f"{counts.latency_ms:.3g} ms"))
    return shown
