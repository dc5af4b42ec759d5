"""The tables that have no file of their aggregate yet."""
