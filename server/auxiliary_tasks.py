"""Recognises what chat clients ask for beside the conversation: titles, tags, follow-up questions and the like.

Open WebUI sends such tasks to the same model, as an ordinary chat with the task as its only message. Their wording is
the one its ``config.py`` carries (templates headed ``### Task:``), last compared with version 0.12.4. A client that
says so in ``metadata.task`` is believed first. Other clients' title prompts are recognised by their usual wording.
Nothing but the kind leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TITLE, TAGS, FOLLOW_UP, QUERY, IMAGE_PROMPT, AUTOCOMPLETE, EMOJI, TOOLS, MERGE, SUMMARY, OTHER = (
    "title",
    "tags",
    "follow-up",
    "search query",
    "image prompt",
    "autocomplete",
    "emoji",
    "tool choice",
    "merge",
    "summary",
    "helper task",
)
"""The kinds, as they are shown."""

_TASK_NAMES = {
    "title_generation": TITLE,
    "tags_generation": TAGS,
    "follow_up_generation": FOLLOW_UP,
    "query_generation": QUERY,
    "image_prompt_generation": IMAGE_PROMPT,
    "autocomplete_generation": AUTOCOMPLETE,
    "emoji_generation": EMOJI,
    "function_calling": TOOLS,
    "moa_response_generation": MERGE,
}
"""Open WebUI's own names of its tasks."""

_HEAD = "### task:"
_HEADED = (
    (re.compile(r"generate a concise.{0,60}\btitle\b"), TITLE),
    (re.compile(r"generate .{0,20}\bbroad tags\b"), TAGS),
    (re.compile(r"\bfollow-?up questions?\b|\bmessages this user might naturally send next\b"), FOLLOW_UP),
    (re.compile(r"\bgenerating search quer|\bgenerate .{0,40}search quer"), QUERY),
    (re.compile(r"\bprompt for an? image generation\b|\bprompt for am image generation\b"), IMAGE_PROMPT),
    (re.compile(r"\bautocompletion system\b"), AUTOCOMPLETE),
    (re.compile(r"^ summarize the conversation history\b"), SUMMARY),
)
"""What follows the head of a task, in its first sentence."""

_PLAIN = (
    (re.compile(r"^your task is to reflect the speaker's likely facial expression"), EMOJI),
    (re.compile(r"^you have been provided with a set of responses from various models"), MERGE),
    (re.compile(r"^(?:please )?(?:provide|generate|create|write) (?:me )?an? (?:very )?(?:concise|short|brief)"
                r".{0,60}\btitle for (?:this|the|our|a) (?:conversation|chat)\b"), TITLE),
    (re.compile(r"^based on the chat history, give this conversation a name\b"), TITLE),
    (re.compile(r"^summari[sz]e (?:this|the|our) (?:conversation|chat) (?:in|into|as) .{0,30}\btitle\b"), TITLE),
)  # fmt: skip
"""Tasks without that head, as whole beginnings: a person may well talk about titles."""

_LOOKED_AT = 600
"""Characters of a message that are looked at; the task stands first, what it is about follows."""

_HISTORY = "<chat_history>"


def side_call(body: Mapping[str, Any]) -> str | None:
    """The kind of side call a request's body is; None for an ordinary one. Never raises, whatever the body holds."""
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(task := metadata.get("task"), str):
        return _TASK_NAMES.get(task.lower().removeprefix("tasks."), OTHER)
    text = _last_user_text(body.get("messages"))
    if not text:
        return None
    start = " ".join(text[:_LOOKED_AT].lower().split())
    if start.startswith(_HEAD):
        rest = start.removeprefix(_HEAD).split("###", 1)[0]
        for wording, kind in _HEADED:
            if wording.search(rest):
                return kind
        # A task in a template's shape that says it works on the chat, reworded by whoever set the client up.
        return OTHER if _HISTORY in text else None
    return next((kind for wording, kind in _PLAIN if wording.search(start)), None)


def _last_user_text(messages: object) -> str:
    """The text of the last message where a user speaks; empty where there is none."""
    if not isinstance(messages, list):
        return ""
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return content
            if isinstance(content, list):
                texts = (part.get("text") for part in content if isinstance(part, Mapping))
                return "\n".join(text for text in texts if isinstance(text, str))
            return ""
    return ""
