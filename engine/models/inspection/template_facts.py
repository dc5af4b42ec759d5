"""What a chat template lets a request choose, told from its text alone: nothing is rendered."""

from __future__ import annotations

import re

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Levels of reasoning, from least to most, that requests may name."""

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_BLOCK = re.compile(r"\{[%{].*?[%}]\}", re.DOTALL)
_THINKING = re.compile(r"\benable_thinking\b")
_EFFORT = re.compile(r"\breasoning_effort\b")
_QUOTED = re.compile(r"""(["'])([a-z]+)\1""")


def thinks(template: str) -> bool:
    """Whether the template reads ``enable_thinking``, or writes or opens ``<think>`` itself."""
    source = _COMMENT.sub("", template)
    return "<think>" in source or _THINKING.search(source) is not None


def effort_levels(template: str) -> tuple[str, ...]:
    """The levels of ``reasoning_effort`` that the template knows, from least to most; none where it does not read it.

    All of :data:`EFFORTS` where it reads it and compares it with nothing, so that any word goes in as it stands.
    """
    source = _COMMENT.sub("", template)
    blocks = [block for block in _BLOCK.findall(source) if _EFFORT.search(block)]
    if not blocks:
        return ()
    named = {word for block in blocks for _, word in _QUOTED.findall(block)}
    known = tuple(level for level in EFFORTS if level in named)
    # One word alone is its default, and says nothing of the others.
    return known if len(known) > 1 else EFFORTS
