"""Alembic's entry: runs the steps on the connection that ``engine.library.migrate`` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from engine.library.rows import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite can change little of a table in place; batch mode copies it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
