"""A model's chat template as the tokenizers use it: which form of content it reads, what it loses, whether it works."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.models.backends.templates.renderer import TooCostly, shared

_TRIALS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "Quiet marmots dig 4817 burrows."),),
    (("system", "Brisk otters count 2359 pebbles."), ("user", "Quiet marmots dig 4817 burrows.")),
    (
        ("user", "Quiet marmots dig 4817 burrows."),
        ("assistant", "Vexed jackdaws hide 7326 coins."),
        ("user", "Humble foxes lick 5093 plums."),
    ),
)
"""Conversations of which every working template can write at least one; no template says these words by itself."""

_LATER_ROLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "system": _TRIALS[1],
    "assistant": _TRIALS[2],
    "tool": (*_TRIALS[2][:2], ("tool", "Pale wyverns brew 6642 gallons.")),
}
"""A conversation that shows what becomes of a role, once it is known what becomes of the user's."""


REASONING = "reasoning_content"
"""What templates call the former thoughts of an assistant's turn."""

FURTHER_KEYS = (REASONING, "tool_calls", "tool_call_id", "name")
"""What a turn may have beside role and content, for templates that speak of it."""


class TemplateRaised(Exception):
    """The chat template could not be rendered; the text is the template's own words, or what is wrong with it."""


class TemplateLost(TemplateRaised):
    """The chat template leaves out what message ``number`` says, by ``role``."""

    def __init__(self, number: int, role: str) -> None:
        super().__init__(f"It leaves out what message {number} (role {role}) says.")
        self.role = role


class TemplateCostly(TemplateRaised):
    """The chat template was ended for what it took."""


class TemplateBroken(TemplateRaised):
    """The chat template is of no use whatever the conversation."""


@dataclass(frozen=True)
class _Look:
    """What trials show: roles whose content is given in parts, roles that are left out, and why nothing works."""

    parts: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    fault: TemplateRaised | None = None


class ChatTemplate:
    """One template with the names the model gives its special tokens. Any thread; nothing is held while it renders.

    Args:
        source: The Jinja text.
        named: Special tokens by the names templates read (``bos_token``); a request's variables win over them.
    """

    def __init__(self, source: str, named: Mapping[str, Any]) -> None:
        self._source = source
        # A template that dumps whole messages would write out a key it does not know.
        self._keys = ("role", "content", *(key for key in FURTHER_KEYS if key in source))
        self._named = dict(named)
        self._lock = threading.Lock()
        self._look: _Look | None = None
        self._variables: frozenset[str] | None = None
        self._variables_known = False
        self._levels: dict[str, frozenset[str]] = {}
        shared().warm()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final: bool,
        kwargs: Mapping[str, object],
    ) -> str:
        """The conversation as the template writes it, with everything that was said in it.

        Each content goes in as text, or as a list of parts where the template reads that; ``reasoning_content`` of a
        message goes in where the template speaks of it. Raises
        :class:`TemplateRaised`: it refused, left something out, took too much (:class:`TemplateCostly`), or works for
        no conversation (:class:`TemplateBroken`).
        """
        look = self._looked()
        if look.fault is not None and not _is_refusal(look.fault):
            raise TemplateBroken(str(look.fault))
        for number, message in enumerate(messages):
            # A tool's turn alone says nothing of one that answers a call.
            alone = "tool_call_id" not in message
            if message["role"] in look.dropped and message["content"].strip() and alone:
                raise TemplateLost(number, message["role"])
        variables = {**kwargs, "add_generation_prompt": add_generation_prompt}
        return self._run(messages, look.parts, variables, continue_final)

    def fault(self) -> str | None:
        """Why the template can write no conversation at all, in words; None where it can."""
        fault = self._looked().fault
        return None if fault is None else str(fault)

    def variables(self) -> frozenset[str] | None:
        """Names the template reads from outside; None where that cannot be told."""
        with self._lock:
            if not self._variables_known:
                try:
                    found = shared().run({"do": "variables", "source": self._source})[0].get("variables")
                except TooCostly:
                    found = None
                self._variables = None if found is None else frozenset(found)
                self._variables_known = True
            return self._variables

    def levels(self, name: str) -> frozenset[str]:
        """Words that the template holds the variable ``name`` against; none where that cannot be told."""
        with self._lock:
            if name not in self._levels:
                try:
                    found = shared().run({"do": "levels", "source": self._source, "name": name})[0].get("levels")
                except TooCostly:
                    found = None
                self._levels[name] = frozenset(found or ())
            return self._levels[name]

    def _run(
        self,
        messages: Sequence[Mapping[str, Any]],
        parts: frozenset[str],
        variables: Mapping[str, object],
        continue_final: bool = False,
    ) -> str:
        job = {
            "do": "render",
            "source": self._source,
            "messages": [{key: m[key] for key in self._keys if key in m} for m in messages],
            "variables": {**self._named, **variables},
            "parts": sorted(parts),
            "continue_final": continue_final,
        }
        try:
            answer, text = shared().run(job)
        except TooCostly as error:
            raise TemplateCostly(f"The template {error}.") from error
        if "raised" in answer:
            raise TemplateRaised(answer["raised"])
        if answer["left_out"]:
            number = answer["left_out"][0]
            raise TemplateLost(number, messages[number]["role"])
        return text

    def _looked(self) -> _Look:
        """What trials showed; they are made once, with the first conversation."""
        with self._lock:
            if self._look is None:
                self._look = self._try()
            return self._look

    def _try(self) -> _Look:
        fault: TemplateRaised | None = None
        for trial in _TRIALS:
            for parts in (frozenset[str](), frozenset(role for role, _ in trial)):
                try:
                    self._trial(trial, parts)
                except TemplateCostly as error:
                    return _Look(fault=error)
                except TemplateRaised as error:
                    # That it lost something says more than that it knows no parts.
                    fault = error if fault is None or isinstance(error, TemplateLost) else fault
                else:
                    return self._try_roles(parts & {"user"})
        return _Look(fault=fault)

    def _try_roles(self, parts: frozenset[str]) -> _Look:
        dropped: set[str] = set()
        for role, trial in _LATER_ROLES.items():
            lost = 0
            for form in (parts, parts | {role}) if role not in parts else (parts,):
                try:
                    self._trial(trial, form)
                except TemplateLost as error:
                    lost += error.role == role
                except TemplateRaised:
                    continue
                else:
                    parts, lost = form, 0
                    break
            if lost:
                dropped.add(role)
        return _Look(parts, frozenset(dropped))

    def _trial(self, trial: Sequence[tuple[str, str]], parts: frozenset[str]) -> None:
        messages = [{"role": role, "content": content} for role, content in trial]
        self._run(messages, parts, {"add_generation_prompt": True})


def _is_refusal(fault: TemplateRaised) -> bool:
    """Whether another conversation may fare better than the trials did: the template said no, in its own words."""
    return not isinstance(fault, TemplateCostly | TemplateLost)


def chosen(templates: Any) -> tuple[str | None, str | None]:
    """The template to use of what a tokenizer holds, one text or several by name, and a note where it was a choice.

    The one called ``default``, else ``chat``, else the first.
    """
    if not isinstance(templates, Mapping):
        return (str(templates) if templates else None), None
    usable = {str(name): str(text) for name, text in templates.items() if text}
    if not usable:
        return None, None
    name = next((name for name in ("default", "chat") if name in usable), next(iter(usable)))
    if name == "default" or len(usable) == 1:
        return usable[name], None
    return usable[name], f"The model has several chat templates and none is called default; '{name}' was used."
