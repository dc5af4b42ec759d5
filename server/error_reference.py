"""Writes ``docs/errors.md`` from the typed errors: ``python -m server.error_reference``; ``--check`` only compares.

Code, statuses and meaning come from the types and the error table; what to do is what the program itself says where it
raises the error, read from the source. A test holds the page to the code.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import engine
import server
from engine.errors import MillmError
from server.errors import ERROR_TABLE, ErrorSpec

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
HEAD = """# Errors and what to do

Every error has a code, a message that says what was asked and what is possible, and usually what to do about it. Under
`/v1` it comes in OpenAI's envelope with the code in lower case, under `/api` as `{success, data, error}` with the code
in upper case; the window shows the same words. Every refusal has the code, in lower case, in the header
`X-miLLM-Error-Code`, and a 503 always says in `Retry-After` when to come back.

This page is generated from the program (`python -m server.error_reference`). *What to do* lists what the program says;
parts in braces are filled in at the time.

## When something looks wrong without an error

| You see | Do |
|---|---|
| Answers are very slow | Another program uses the processor, or `CPU_THREADS` is above the number of cores. |
| Steered text falls apart | The dial is past the cliff: turn it down until it adds under 0.35 of the typical norm. |
| The dial changes nothing | Look at the bar: steering may be switched off, or the request may bring its own. |
| Changes are not kept | `/api/health/detailed` and the window say whether the database was lost or its disk is full. |
| Nothing of this helps | `python -m app doctor`, and `logs/millm.log` and `logs/crash-*.txt` in the data directory. |

## Codes
"""


def error_types() -> list[type[MillmError]]:
    """Every error type of the engine and the server, by code, then by name."""
    for package in (engine, server):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".migrations." not in module.name:
                importlib.import_module(module.name)
    found: list[type[MillmError]] = []
    waiting: list[type[MillmError]] = [MillmError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__.split(".")[0] in ("engine", "server"):
            found.append(kind)
        waiting.extend(kind.__subclasses__())
    return sorted(set(found), key=lambda kind: (kind.code, kind.__name__))


def remedies() -> dict[str, list[str]]:
    """Class name → the different remedies it is raised with, in the order of the source."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in ("engine", "server", "app"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, text in _raised(ast.parse(path.read_text(encoding="utf-8"))):
                if text not in found[name]:
                    found[name].append(text)
    return found


def _raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for keyword in node.keywords:
            if keyword.arg == "remedy" and (text := _text(keyword.value)) is not None:
                yield name, text


def _text(node: ast.expr) -> str | None:
    """A string written in the source; values put into it become their expression in braces."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                parts.append("{…}")
        return "".join(parts)
    return None


def page() -> str:
    """The whole page."""
    said = remedies()
    out = [HEAD]
    by_code: dict[str, list[type[MillmError]]] = defaultdict(list)
    for kind in error_types():
        by_code[kind.code].append(kind)
    for code in sorted(by_code):
        out.append(f"### {code}\n")
        out.append(_statuses(ERROR_TABLE[code]) + "\n")
        for kind in by_code[code]:
            meaning = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
            out.append(f"- {_plain(meaning)}")
        todo = list(dict.fromkeys(text for kind in by_code[code] for text in said.get(kind.__name__, [])))
        if todo:
            out.append("\nWhat to do:\n")
            out.extend(f"- {_escaped(text)}" for text in todo)
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def _statuses(spec: ErrorSpec) -> str:
    other = spec.status if spec.api_status is None else spec.api_status
    if other == spec.status:
        return f"Status {spec.status}."
    return f"Status {spec.status} under `/v1`, {other} under `/api`."


def _plain(text: str) -> str:
    """A docstring without its markup."""
    return _escaped(text.replace(":class:", "").replace("``", "`"))


def _escaped(text: str) -> str:
    """Angle brackets and pipes as text."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


def main() -> int:
    """Write the page, or say whether it is current."""
    parser = argparse.ArgumentParser(prog="python -m server.error_reference", description="Writes docs/errors.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is not current")
    if parser.parse_args().check:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
