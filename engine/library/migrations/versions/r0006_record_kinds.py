"""Records of other things than comparisons: sweeps and contrasts. Those that are here are comparisons."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("kind", sa.Text(), server_default="comparison", nullable=False))
    op.add_column("experiments", sa.Column("content", sa.Text(), server_default="{}", nullable=False))


def downgrade() -> None:
    op.drop_column("experiments", "content")
    op.drop_column("experiments", "kind")
