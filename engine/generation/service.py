"""The door to generation for every face: prepare a request for the resident model, submit it, read the queue's
figures.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.config import EngineSettings
from engine.errors import ContextLengthExceeded, InvalidParameter, ModelBusy, ModelNotLoaded
from engine.generation.lane import PreparedRequest, RequestHandle
from engine.generation.prompts import GENERIC_TURN_END, PreparedPrompt, prepare_chat, prepare_text
from engine.generation.request import ChatInput, Delta, GenerationRequest
from engine.generation.scheduler import QueueStats, Scheduler
from engine.generation.worker import EngineThread
from engine.library.repositories.profiles import ProfileRepository
from engine.models.shelf import LoadedModel, ModelShelf
from engine.monitor.activation_spec import CaptureLimits, require_one_answer
from engine.monitor.capture import CapturePlan
from engine.monitor.capture import resolve as resolve_capture
from engine.steering.desk import SteeringDesk
from engine.steering.resolve import ResolvedSteering, resolve
from engine.steering.stored import StoredProfile, dial_bounds, read_stored

__all__ = ["GenerationService", "PreparedPrompt", "PreparedRequest", "QueueStats", "RequestHandle"]


class GenerationService:
    """Prepares and submits requests. All methods may be called from any thread."""

    def __init__(
        self,
        settings: EngineSettings,
        shelf: ModelShelf,
        profiles: ProfileRepository,
        desk: SteeringDesk,
        scheduler: Scheduler,
        thread: EngineThread,
    ) -> None:
        self._settings = settings
        self._shelf = shelf
        self._profiles = profiles
        self._desk = desk
        self._bounds = dial_bounds(settings)
        self._scheduler = scheduler
        self._thread = thread

    def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Render and tokenize ``request`` for the resident model and resolve its caps; takes milliseconds.

        Raises :class:`ModelNotLoaded` when ``request.model`` is not resident, :class:`ContextLengthExceeded` when
        prompt plus cap do not fit the window, :class:`InvalidParameter` and :class:`NoChatTemplate` for the input.
        """
        loaded = self._resident(request.model)
        tokenizer = loaded.backend.tokenizer
        for token in request.sampling.logit_bias:
            if token >= loaded.info.vocab_size:
                raise InvalidParameter(
                    f"Invalid value for 'logit_bias': token id {token} is outside the vocabulary of "
                    f"{loaded.info.vocab_size} tokens.",
                    param="logit_bias",
                )
        notes: tuple[str, ...] = ()
        own_stops: tuple[str, ...] = ()
        if isinstance(request.input, ChatInput):
            prompt, chat_notes, continues = prepare_chat(tokenizer, request.input)
            prompts = [prompt]
            notes = tuple(chat_notes)
            own_stops = () if tokenizer.has_chat_template else (GENERIC_TURN_END,)
        else:
            prompts = prepare_text(tokenizer, request.input)
            continues = True
        caps = tuple(self._cap(request, loaded, prompts, place) for place in range(len(prompts)))
        solo = (
            request.sampling.seed is not None
            or request.activations is not None
            or not loaded.backend.capabilities.batching
            or not self._settings.ENABLE_CONTINUOUS_BATCHING
        )
        return PreparedRequest(
            request,
            loaded,
            tuple(prompts),
            caps,
            continues,
            solo,
            self._steering(request),
            self._capture(request, prompts, caps),
            own_stops,
            notes,
        )

    def submit(self, prepared: PreparedRequest, sink: Callable[[Delta], None]) -> RequestHandle:
        """Queue a prepared request; ``sink`` gets its deltas on the engine thread and must return at once.

        Raises :class:`QueueFull`, :class:`ModelBusy` while the model is being unloaded or was replaced since
        ``prepare``.
        """
        if self._shelf.resident is not prepared.loaded:
            raise ModelBusy(
                f"The model {prepared.model_name!r} was unloaded before the request could start.", retry_after=5
            )
        return self._scheduler.submit(prepared, sink, self._thread.wake)

    def stats(self) -> QueueStats:
        """The queue's figures now."""
        return self._scheduler.stats()

    def _steering(self, request: GenerationRequest) -> ResolvedSteering:
        now = self._desk.now
        if request.steering.is_empty:
            return ResolvedSteering(None, now.plan)
        return resolve(request.steering, now.state, now.plan, self._find_profile, self._bounds)

    def _find_profile(self, name: str) -> StoredProfile | None:
        record = self._profiles.by_name(name)
        return None if record is None else read_stored(record)

    def _capture(
        self, request: GenerationRequest, prompts: list[PreparedPrompt], caps: tuple[int, ...]
    ) -> CapturePlan | None:
        if request.activations is None:
            return None
        require_one_answer(choices=request.choices_written, prompts=len(prompts))
        return resolve_capture(
            request.activations,
            self._desk.state.attachments,
            len(prompts[0].token_ids),
            caps[0],
            limits=CaptureLimits.from_settings(self._settings),
            first_position_steered=self._settings.STEER_FIRST_POSITION,
        )

    def _resident(self, name: str) -> LoadedModel:
        loaded = self._shelf.resident
        if loaded is None:
            raise ModelNotLoaded(
                f"The model {name!r} is not loaded; no model is.", remedy="Load a model first.", retry_after=30
            )
        if loaded.record.name != name and self._shelf.resolve(name).id != loaded.record.id:
            raise ModelNotLoaded(
                f"The model {name!r} is not loaded; {loaded.record.name!r} is.",
                remedy=f"Load {name!r}, or ask for {loaded.record.name!r}.",
                retry_after=30,
            )
        return loaded

    def _cap(self, request: GenerationRequest, loaded: LoadedModel, prompts: list[PreparedPrompt], place: int) -> int:
        window = loaded.info.context_length
        length = len(prompts[place].token_ids)
        asked = request.max_tokens
        cap = asked if asked is not None else min(window - length, self._settings.DEFAULT_MAX_TOKENS)
        which = "The prompt" if len(prompts) == 1 else f"Prompt {place}"
        if length + max(cap, 1) > window:
            tail = f" and max_tokens asks for {asked}" if asked is not None else ""
            raise ContextLengthExceeded(
                f"{which} has {length} tokens{tail}; the context window of {loaded.record.name!r} is {window} tokens.",
                details={"context_length": window, "prompt_tokens": length, "max_tokens": asked},
                remedy="Shorten the prompt or ask for fewer tokens.",
            )
        if request.sampling.min_tokens > cap:
            raise InvalidParameter(
                f"Invalid value for 'min_tokens': {request.sampling.min_tokens} is above the cap of {cap} tokens.",
                param="min_tokens",
            )
        return cap
