"""The batch read: streams between two positions, planned once, each record once."""
