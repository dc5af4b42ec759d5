"""Finding things on the hub: a search by words, and pairs of a model and an SAE that are known to belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.actions.downloading.models import DownloadRequest
from engine.actions.downloading.saes import SaeDownloads, SaeStart
from engine.actions.models.actions import ModelActions
from engine.actions.models.views import ModelView
from engine.errors import InvalidParameter, ModelAlreadyExists, NotFound
from engine.models.hub.client import HubClient, HubFound

MOST_FOUND = 50
"""Repositories of one search at most."""
LONGEST_QUERY = 200

Wanted = Literal["models", "saes"]


@dataclass(frozen=True)
class KnownPair:
    """A model and an SAE that was trained on it, by their exact names on the hub.

    Attributes:
        key: Its name in this list.
        file_path: The SAE's weight file in its repository.
        layer: The block whose output the SAE is for.
        gated: Whether the model's authors ask for consent first; a token is then needed.
        about: Width and layout of the SAE, in words.
    """

    key: str
    model_repo: str
    sae_repo: str
    file_path: str
    layer: int
    gated: bool
    about: str


PAIRS = (
    KnownPair(
        "gpt2-small",
        "openai-community/gpt2",
        "jbloom/GPT2-Small-SAEs-Reformatted",
        "blocks.8.hook_resid_pre/sae_weights.safetensors",
        7,
        False,
        "24,576 features, SAELens",
    ),
    KnownPair(
        "gemma-2-2b",
        "google/gemma-2-2b",
        "google/gemma-scope-2b-pt-res",
        "layer_12/width_16k/average_l0_82/params.npz",
        12,
        True,
        "16,384 features, Gemma Scope",
    ),
    KnownPair(
        "llama-3.1-8b",
        "meta-llama/Llama-3.1-8B",
        "fnlp/Llama3_1-8B-Base-LXR-8x",
        "Llama3_1-8B-Base-L15R-8x/checkpoints/final.safetensors",
        15,
        True,
        "32,768 features, Llama Scope",
    ),
)
"""Written down from what their authors publish. None of them was fetched or tried while this program was made."""

UNTRIED = (
    "Named from what their authors publish; none of them was fetched or tried while this program was made. Look at the "
    "figures on the SAEs page after the first load."
)


@dataclass(frozen=True)
class FetchedPair:
    """What was begun. ``model`` is None where the library has it already."""

    pair: KnownPair
    model: ModelView | None
    sae: SaeStart


class HubFinder:
    """Asks the hub, and begins the downloads of a pair. Blocks; not for a window's thread."""

    def __init__(self, hub: HubClient, models: ModelActions, saes: SaeDownloads) -> None:
        self._hub = hub
        self._models = models
        self._saes = saes

    def search(
        self, query: str, *, kind: Wanted = "models", limit: int = 30, token: str | None = None
    ) -> tuple[HubFound, ...]:
        """Repositories whose names hold the words of ``query``, those most often downloaded first.

        ``models`` are those that generate text; the hub has no mark that all SAEs carry, so ``saes`` are whatever fits.
        Raises :class:`InvalidParameter`, :class:`HubOffline`, :class:`HubUnavailable`.
        """
        words = " ".join(query.split())
        if not words or len(words) > LONGEST_QUERY:
            raise InvalidParameter(
                f"A search has 1 to {LONGEST_QUERY} characters; this one has {len(words)}.",
                param="q",
                remedy="Write a part of a name, for example gemma-scope.",
            )
        if not 1 <= limit <= MOST_FOUND:
            raise InvalidParameter(f"Invalid value for 'limit': {limit}; expected 1 to {MOST_FOUND}.", param="limit")
        return self._hub.search(words, limit, generating=kind == "models", token=token)

    def fetch_pair(self, key: str, *, token: str | None = None) -> FetchedPair:
        """Begin to fetch a pair of :data:`PAIRS`. Both repositories are asked for before anything is begun.

        Raises :class:`NotFound` for another key, and as :meth:`ModelActions.download` and :meth:`SaeDownloads.start`.
        """
        pair = next((each for each in PAIRS if each.key == key), None)
        if pair is None:
            known = ", ".join(each.key for each in PAIRS)
            raise NotFound(f"There is no pair {key[:100]!r}.", param="key", remedy=f"Known are {known}.")
        self._saes.preview(pair.sae_repo, token=token)
        model: ModelView | None = None
        try:
            model = self._models.download(DownloadRequest(pair.model_repo, token=token))
        except ModelAlreadyExists:
            # Half of it is here already.
            pass
        return FetchedPair(pair, model, self._saes.start(pair.sae_repo, file_path=pair.file_path, token=token))
