"""Programs before and after a migration to kinesis-spout, as the guides of the documentation show them."""
