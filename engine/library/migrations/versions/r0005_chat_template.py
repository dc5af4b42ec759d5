"""Whether a model has a chat template; unknown for those that are here already, until they are loaded again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("has_chat_template", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("models", "has_chat_template")
