"""One file per step of the schema, in the order of their ``down_revision``."""
