"""What directories need beyond the standard library: names that last, and whether they can be written to."""
