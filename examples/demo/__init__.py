"""``make demo``: the whole pipeline on one machine, with failures on purpose, and its books checked."""
