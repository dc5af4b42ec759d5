"""The rows of the table, by what they measure; each module has ``measure(world, rounds)``."""
