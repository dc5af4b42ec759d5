"""The papers hold what they promise: links lead somewhere, snippets are valid, examples are accepted."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from engine.documents.imports import import_circuit, import_clusters, import_profile

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "packaging").glob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(path.read_text(encoding="utf-8")) if found == language]


def anchors(path: Path) -> set[str]:
    """Anchors of a paper's headings, as GitHub makes them."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("paper", PAPERS, ids=name)
def test_links_lead_somewhere(paper: Path) -> None:
    text = _BLOCK.sub("", paper.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (paper.parent / target).resolve() if target else paper
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("paper", PAPERS, ids=name)
def test_snippets_are_valid(paper: Path) -> None:
    for snippet in blocks(paper, "python"):
        ast.parse(snippet)
    for snippet in blocks(paper, "json"):
        json.loads(snippet)
    for snippet in blocks(paper, "sh"):
        words = shlex.split(snippet, comments=True)
        for word in words:
            if word.lstrip().startswith("{") and word.rstrip().endswith("}"):
                json.loads(word)


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "README.md"]
    assert [page for page in pages if f"({page})" not in index] == []


def test_pictures_are_small() -> None:
    pictures = sorted((ROOT / "docs" / "images").glob("*.png"))
    assert [picture.name for picture in pictures if picture.stat().st_size > 100_000] == []


def test_the_pictures_of_the_window_stay_small_together() -> None:
    pictures = sorted((ROOT / "docs" / "screenshots").glob("*.png"))
    assert sum(picture.stat().st_size for picture in pictures) < 6_000_000


def test_the_examples_of_documents_are_accepted() -> None:
    profile, cluster, circuit = (text.encode() for text in blocks(ROOT / "docs" / "document-formats.md", "json"))
    assert import_profile(profile).name == "A touch of the sea"
    assert [item.name for item in import_clusters(cluster)] == ["Sea, by hand"]
    read = import_circuit(circuit)
    assert read.definition.name == "Religion, two layers"
    assert read.rung == 2
