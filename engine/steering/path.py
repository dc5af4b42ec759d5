"""The steering path of one answer: what was added from which of its tokens on, where that changed on the way.

The report of an answer lists what was added at its last token (:mod:`engine.steering.report`); a path lists every
steering it was written under, so that the last state is never told as if it were the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.steering.report import SteeringReport

MOST_STEPS = 200
"""Steps of a path that are kept. A dial that is dragged on and on leaves the first of them and the last."""


@dataclass(frozen=True)
class SteeringStep:
    """One steering of a path.

    Attributes:
        token: The first token of the answer that was chosen under it, counted from 1; 0 where it was in force while the
            prompt was read, whose last pass gives the first token.
        report: What was added; ``changed`` is not set on it.
        digest: Of the vectors that were added; two steerings of one report may differ in it.
        rung: The evidence rung that could be claimed for it, by itself; an answer of several steps claims none.
    """

    token: int
    report: SteeringReport
    digest: str = ""
    rung: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with the strengths: ``{token, text, items}``."""
        told = self.report.as_dict()
        return {"token": self.token, "text": told["text"], "items": told["items"]}


@dataclass(frozen=True)
class SteeringPath:
    """The steerings of one answer in their order; empty before its first pass.

    ``left_out`` counts steps that were dropped before the last one, of a path longer than :data:`MOST_STEPS`.
    """

    steps: tuple[SteeringStep, ...] = ()
    left_out: int = 0

    @property
    def turns(self) -> bool:
        """Whether the steering was another one at some point."""
        return len(self.steps) > 1

    def then(self, step: SteeringStep) -> SteeringPath:
        """The path when the pass that chooses the token of ``step`` (0: one that reads the prompt) runs under that."""
        if self.steps and (self.steps[-1].report, self.steps[-1].digest) == (step.report, step.digest):
            return self
        if self.steps and step.token and self.steps[-1].token == step.token:
            # The pass did not come about under the former, and is tried again: no token was chosen under that.
            return replace(self, steps=self.steps[:-1]).then(step)
        if len(self.steps) >= MOST_STEPS:
            return SteeringPath((*self.steps[:-1], step), self.left_out + 1)
        return replace(self, steps=(*self.steps, step))

    def until(self, tokens: int) -> SteeringPath:
        """What steered the first ``tokens`` tokens of the answer."""
        return replace(self, steps=tuple(step for step in self.steps if step.token <= tokens))

    def as_list(self) -> list[dict[str, Any]]:
        return [step.as_dict() for step in self.steps]


NO_PATH = SteeringPath()
"""Of an answer that has not begun."""
