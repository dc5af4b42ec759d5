"""``best_of``: more answers are written than are given, and the likeliest are chosen when all have ended."""

from __future__ import annotations

from dataclasses import replace

from engine.generation.request import ChoiceFinished, Delta, TextDelta


class BestOf:
    """Keeps the deltas of all choices of a prompt and gives the best ``n``, renumbered, in falling likelihood."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._kept: dict[int, dict[int, list[TextDelta | ChoiceFinished]]] = {}

    def keep(self, prompt: int, delta: TextDelta | ChoiceFinished) -> None:
        """Hold a delta back until its prompt's choices can be compared."""
        self._kept.setdefault(prompt, {}).setdefault(delta.index, []).append(delta)

    def take_finished(self, written: int) -> list[Delta]:
        """The deltas to send of every prompt whose ``written`` choices have all ended."""
        out: list[Delta] = []
        for prompt in sorted(self._kept):
            choices = self._kept[prompt]
            ends = [c[-1] for c in choices.values() if isinstance(c[-1], ChoiceFinished)]
            if len(ends) < written:
                continue
            best = sorted(ends, key=lambda end: (-end.cumulative_logprob, end.index))[: self._n]
            for place, end in enumerate(best):
                index = prompt * self._n + place
                for delta in choices[end.index]:
                    out.append(_renumbered(delta, index))
            del self._kept[prompt]
        return out


def _renumbered(delta: TextDelta | ChoiceFinished, index: int) -> Delta:
    return replace(delta, index=index)
