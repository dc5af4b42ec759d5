"""What the Monitor page shows, gathered from the live monitor a little at a time; bounded, and without widgets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.engine import Engine
from engine.public.library import FeatureLabel
from engine.public.monitor import ActivationRecord, FeatureStatistics, Metric, MonitoringCost, MonitoringState
from engine.public.steering import AttachmentKey

KEPT = 400
"""Tokens kept of one SAE for the map and the history."""
WINDOW = 72
"""Tokens in the map."""
ROWS = 20
"""Features in the map where none were chosen."""
AROUND = 6
"""Tokens shown before and after an event."""
STATISTICS = 100


@dataclass(frozen=True)
class SeenRecord:
    """One record with its token in words."""

    record: ActivationRecord
    token: str


@dataclass(frozen=True)
class Poll:
    """What one look at the monitor gave. ``statistics`` is None where they were not asked for; ``asked`` are the
    features whose labels were looked up.
    """

    number: int
    new: tuple[SeenRecord, ...]
    state: MonitoringState
    cost: MonitoringCost
    statistics: tuple[FeatureStatistics, ...] | None
    labels: Mapping[int, FeatureLabel]
    asked: frozenset[int]


def poll(engine: Engine, number: int, place: AttachmentKey | None, known: Iterable[int], *, figures: bool) -> Poll:
    """Look at the monitor: what is new since ``number``. Reads the library for labels that are not ``known`` yet; for
    a background thread.
    """
    monitor = engine.monitor
    state = monitor.state()
    total, records = monitor.since(number)
    resident = engine.shelf.resident
    new: list[SeenRecord] = []
    statistics: tuple[FeatureStatistics, ...] | None = None
    wanted: set[int] = set()
    if place is not None and resident is not None:
        text = resident.backend.tokenizer.token_text
        new = [SeenRecord(each, text(each.token_id)) for each in records if (each.sae_id, each.layer) == place]
        wanted = {index for each in new for index, _ in each.record.activations}
        if figures:
            watched = place in state.saes
            found = monitor.top(STATISTICS, Metric.MAX, sae_id=place[0], layer=place[1]) if watched else []
            statistics = tuple(found)
            wanted |= {each.feature_idx for each in found}
    wanted -= set(known)
    labels = engine.library.labels.of(place[0], wanted) if place is not None and wanted else {}
    return Poll(total, tuple(new), state, monitor.cost(), statistics, labels, frozenset(wanted))


@dataclass(frozen=True)
class Map:
    """The heat map: ``values[row][column]`` is the activation of ``features[row]`` at ``tokens[column]``."""

    features: tuple[int, ...]
    tokens: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    top: float


@dataclass(frozen=True)
class SeenEvent:
    """A line of the history: a token, the text around it, and what fired."""

    record: ActivationRecord
    before: str
    token: str
    after: str
    strongest: tuple[tuple[int, float], ...]


class Feed:
    """Keeps the last tokens of the SAE that is shown."""

    def __init__(self) -> None:
        self.number = 0
        self.seen: deque[SeenRecord] = deque(maxlen=KEPT)
        self.labels: dict[int, FeatureLabel] = {}
        self.asked: set[int] = set()
        """Features whose labels are known, or known not to be there."""

    def take(self, found: Poll) -> None:
        """Add what a look gave."""
        self.number = found.number
        self.seen.extend(found.new)
        self.labels.update(found.labels)
        self.asked |= found.asked

    def begin_anew(self, number: int) -> None:
        """Forget everything shown so far; only what comes after ``number`` counts."""
        self.number = number
        self.seen.clear()
        self.forget_labels()

    def forget_labels(self) -> None:
        """Labels have changed, or are another SAE's: look them up anew."""
        self.labels.clear()
        self.asked.clear()

    def map(self, chosen: Sequence[int] | None, rows: int = ROWS) -> Map:
        """The last tokens against the chosen features, else against those that fired most in them; at most ``rows``."""
        shown = list(self.seen)[-WINDOW:]
        if chosen is None:
            best: dict[int, float] = {}
            for each in shown:
                if each.record.token_position:
                    for index, value in each.record.activations:
                        best[index] = max(best.get(index, 0.0), value)
            features = tuple(sorted(sorted(best, key=lambda index: (-best[index], index))[:rows]))
        else:
            features = tuple(chosen)[:rows]
        columns = [dict(each.record.activations) for each in shown]
        values = tuple(tuple(max(0.0, column.get(index, 0.0)) for column in columns) for index in features)
        # The first position is the attention sink: it would pale everything else.
        usual = [value for row in values for value, each in zip(row, shown, strict=True) if each.record.token_position]
        return Map(features, tuple(each.token for each in shown), values, max(usual, default=0.0))

    def history(self, limit: int = 100) -> list[SeenEvent]:
        """The newest events first, each with the text around it as far as it was read."""
        answers: dict[tuple[str, int], list[tuple[int, SeenRecord]]] = {}
        for place, each in enumerate(self.seen):
            answers.setdefault((each.record.request_id, each.record.choice), []).append((place, each))
        events: list[tuple[int, SeenEvent]] = []
        for answer in answers.values():
            for turn, (place, each) in enumerate(answer):
                before = "".join(other.token for _, other in answer[max(0, turn - AROUND) : turn])
                after = "".join(other.token for _, other in answer[turn + 1 : turn + 1 + AROUND])
                strongest = each.record.top_k[:3]
                events.append((place, SeenEvent(each.record, before, each.token, after, strongest)))
        events.sort(key=lambda item: -item[0])
        return [event for _, event in events[:limit]]

    @property
    def newest(self) -> SeenRecord | None:
        """The last token."""
        return self.seen[-1] if self.seen else None
