"""The repositories that have no file of their aggregate yet."""
