"""What the logs of all doors have in common: the words for shards and positions, and each kind of failure once."""
