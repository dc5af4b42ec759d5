"""The page of errors is what the program says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from server.errors import ERROR_TABLE

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    # A process of its own: error types that other tests define are no part of the program.
    checked = subprocess.run([sys.executable, "-m", "server.error_reference", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "run: python -m server.error_reference"


def test_no_code_is_left_out() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert [code for code in ERROR_TABLE if f"### {code}\n" not in page] == []
