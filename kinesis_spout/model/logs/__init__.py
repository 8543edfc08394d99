"""What the logs of all doors share: words, each kind of failure once, and a limit of lines a minute."""
