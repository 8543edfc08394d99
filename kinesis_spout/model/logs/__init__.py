"""What the logs of all doors have in common: words, each kind of failure once, and so many lines a minute."""
