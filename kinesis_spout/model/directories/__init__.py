"""What the standard library lacks for directories: durable names, private folders, a check for writing."""
