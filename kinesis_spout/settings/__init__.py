"""What users set, and how they write it: the grammar of positions."""
