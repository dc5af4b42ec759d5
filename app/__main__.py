"""The entry point: ``python -m app`` and the ``millm`` script."""

from __future__ import annotations

from app import environment

environment.prepare()  # before anything that might import torch

import multiprocessing  # noqa: E402
import sys  # noqa: E402


def main() -> int:
    """Run the command line. In a frozen program this is also where worker processes start, which never come back."""
    multiprocessing.freeze_support()
    from app.cli import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
