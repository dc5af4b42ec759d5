"""What the window's first page is told of the demo pack."""

from __future__ import annotations

from pathlib import Path

from app.demo.facts import demo_facts


def test_the_facts_are_the_packs() -> None:
    facts = demo_facts()
    assert facts is not None
    assert (facts.model, facts.attach_set) == ("SmolLM2-135M-Instruct", "Demo: layers 10, 15 and 20")
    assert (facts.cluster, facts.intensity) == ("Demo: food and cooking", 1.25)
    assert facts.topic == "food"
    assert facts.prompt == "Describe a place you like."
    assert facts.report is not None and facts.report.name == "REPORT.md"


def test_without_a_pack_there_are_none(tmp_path: Path) -> None:
    assert demo_facts(tmp_path) is None
    (tmp_path / "pack.json").write_text("{", encoding="utf-8")
    assert demo_facts(tmp_path) is None
