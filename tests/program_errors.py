"""Every error type of the program, wherever it is defined and whatever else has been imported."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from engine.errors import MillmError

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "server", "app")


def program_error_types() -> list[type[MillmError]]:
    """All types below :class:`MillmError` that the program defines; types that tests make are left out."""
    for module in error_modules():
        importlib.import_module(module)
    found: list[type[MillmError]] = [MillmError]
    for parent in found:
        found.extend(each for each in parent.__subclasses__() if each not in found)
    return [each for each in found if each.__module__.split(".")[0] in PACKAGES]


def error_modules() -> list[str]:
    """The modules whose source defines an error type: read, not imported, so that none is overlooked."""
    defined: list[tuple[str, str, set[str]]] = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    defined.append((module, node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases}))
    errors = {MillmError.__name__}
    found: set[str] = set()
    while True:
        more = [(module, name) for module, name, bases in defined if bases & errors]
        if {name for _, name in more} <= errors:
            return sorted(found | {module for module, _ in more})
        errors.update(name for _, name in more)
        found.update(module for module, _ in more)
