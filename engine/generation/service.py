"""The door to generation for every face: prepare a request for the resident model, submit it, read the queue's
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from engine.config import EngineSettings
from engine.counting import so_many
from engine.documents.evidence import PERSISTENCE_SENTENCE
from engine.errors import ContextLengthExceeded, InvalidParameter, MillmError, ModelBusy, ModelNotLoaded
from engine.generation.admission import QueueStats
from engine.generation.constraint import CompiledConstraint
from engine.generation.constraints.compiler import ConstraintCompiler
from engine.generation.effort import settled
from engine.generation.embeddings import (
    Embedded,
    Embedding,
    EmbeddingRequest,
    PreparedEmbeddings,
    tokenize,
)
from engine.generation.errors import ResponseFormatUnsupported
from engine.generation.fill import DEFAULT_CAP, FillInput, marks_for, prepare_fill
from engine.generation.observers import RequestObservers, Work
from engine.generation.pace import Pace
from engine.generation.prefill_job import PrefillJob, numbered
from engine.generation.prepared import PreparedRequest, RequestHandle
from engine.generation.prompt_scores import FEWEST, FEWEST_ON_A_GPU, check_figures, where_to_part
from engine.generation.prompts import (
    GENERIC_TURN_END,
    PreparedPrompt,
    PromptTooLong,
    check_readable,
    prepare_chat,
    prepare_text,
    unread_variables,
)
from engine.generation.request import ChatInput, Delta, GenerationRequest, TextInput
from engine.generation.response_format import ResponseFormat
from engine.generation.scheduler import Scheduler
from engine.generation.scoring import (
    PreparedScoring,
    Scored,
    Scoring,
    ScoringRequest,
    check_vocabulary,
    prepare_input,
)
from engine.generation.tools.preparing import compiled_calls, grammar_of, marks_of, shown_tools
from engine.generation.tools.probe import tool_form
from engine.generation.worker import EngineThread
from engine.library.profiles import ProfileRepository
from engine.library.saes import SaeRepository
from engine.models.backends.lengths import TextTooLong
from engine.models.registry import LoadedModel, ModelShelf
from engine.monitor.activation_spec import CaptureLimits, require_one_answer
from engine.monitor.capture import CapturePlan
from engine.monitor.capture import resolve as resolve_capture
from engine.steering.desk import SteeringDesk
from engine.steering.resolve import ResolvedSteering, resolve
from engine.steering.stored import StoredProfile, dial_bounds, read_stored

__all__ = ["GenerationService", "PreparedPrompt", "PreparedRequest", "QueueStats", "RequestHandle"]

T = TypeVar("T")


NOTE_PERSISTENCE = f"The rung of what steers: {PERSISTENCE_SENTENCE}"
"""Beside an answer's rung where the phrase alone promises more."""


class GenerationService:
    """Prepares and submits requests. All methods may be called from any thread.

    Attributes:
        observers: Who is told how requests go.
    """

    def __init__(
        self,
        settings: EngineSettings,
        shelf: ModelShelf,
        profiles: ProfileRepository,
        saes: SaeRepository,
        desk: SteeringDesk,
        scheduler: Scheduler,
        thread: EngineThread,
    ) -> None:
        self.observers = RequestObservers()
        self._settings = settings
        self._shelf = shelf
        self._profiles = profiles
        self._saes = saes
        self._desk = desk
        self._bounds = dial_bounds(settings)
        self._scheduler = scheduler
        self._thread = thread
        self._constraints = ConstraintCompiler(
            settings.STRUCTURED_OUTPUT_GRAMMAR_CACHE, settings.STRUCTURED_OUTPUT_COMPILE_TIMEOUT
        )
        scheduler.on_backend_change(self._constraints.drop)

    def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Render and tokenize ``request`` for the resident model and resolve its caps; takes milliseconds.

        A ``response_format`` the model has not compiled yet is compiled meanwhile (see :meth:`compile_constraint`).

        Raises :class:`ModelNotLoaded` when ``request.model`` is not resident, :class:`ContextLengthExceeded` when
        prompt plus cap do not fit the window, :class:`InvalidParameter` and :class:`NoChatTemplate` for the input,
        :class:`ResponseFormatUnsupported` when the constraint cannot be compiled, :class:`FimUnsupported` when the
        model has no marks for a gap.
        """
        loaded = self._resident(request.model)
        tokenizer = loaded.backend.tokenizer
        given, idle = settled(tokenizer, request.input)
        request = replace(request, input=given)
        check_bias(request.sampling.logit_bias, loaded.info.vocab_size)
        notes: tuple[str, ...] = ()
        own_stops: tuple[str, ...] = ()
        own_ends: frozenset[int] = frozenset()
        unread: tuple[str, ...] = ()
        left_out: tuple[str, ...] = ()
        if isinstance(request.input, TextInput):
            try:
                if isinstance(request.input, FillInput):
                    marks = marks_for(tokenizer, loaded.info.readable_ids, loaded.record.name)
                    own_ends = marks.ends
                    prompts = [prepare_fill(tokenizer, request.input, marks, loaded.info.context_length)]
                else:
                    window, readable = loaded.info.context_length, loaded.info.readable_ids
                    prompts = prepare_text(tokenizer, request.input, window, readable)
            except PromptTooLong as error:
                raise self._too_long(request, loaded, error.tokens, error.place, at_least=True) from error
            for place, each in enumerate(prompts):
                try:
                    check_readable(tokenizer, each.token_ids, loaded.info.readable_ids, "prompt")
                except MillmError as error:
                    raise numbered(error, request.label, place) from error
            continues = (True,) * len(prompts)
        else:
            request, left_out, notes = self._offered(request, loaded)
            prompts, more, continues = self._conversations(loaded, request)
            notes = (*notes, *more)
            unread = (*unread_variables(tokenizer, _conversations_of(request)[0].template_kwargs), *idle)
            own_stops = () if tokenizer.has_chat_template else (GENERIC_TURN_END,)
        if request.prompt_logprobs is not None:
            check_figures(prompts, request.prompt_logprobs, request.choices_written)
        caps = self._caps(request, loaded, prompts)
        solo = (
            request.seed_binds
            or request.activations is not None
            or not loaded.backend.capabilities.batching
            or not self._settings.ENABLE_CONTINUOUS_BATCHING
            # Sides of a comparison are written in one pass or, with no lane for the other, each in passes of its own.
            or (request.noise_seed is not None and self._settings.MAX_LANES == 1)
        )
        steering = self._steering(request)
        plan = steering.admitted if steering.plan is None else steering.plan
        if plan.rung is not None and plan.report.only_persistence:
            notes = (*notes, NOTE_PERSISTENCE)
        capture = self._capture(request, prompts, caps)
        constraint = calls = None
        shown_ids: frozenset[int] = frozenset()
        if request.tools is not None:
            self._check_ends(loaded, "tools")
            calls, more = compiled_calls(
                request.tools, tokenizer, request.response_format, lambda asked: self._constraints.get(tokenizer, asked)
            )
            notes = (*notes, *more)
            shown_ids = marks_of(tool_form(tokenizer), tokenizer)
        if request.response_format is not None:
            # What was cut by a stop would look finished, and only the model itself may end a document.
            own_stops = ()
            self._check_ends(loaded, "response_format")
            if calls is None:
                constraint = self._constraints.get(tokenizer, request.response_format)
        return PreparedRequest(
            request,
            loaded,
            tuple(prompts),
            caps,
            continues,
            solo,
            steering,
            capture,
            own_stops,
            notes,
            unread,
            constraint,
            calls,
            shown_ids,
            left_out,
            own_ends,
            () if request.prompt_logprobs is None else _parted(loaded, prompts),
        )

    @staticmethod
    def _check_ends(loaded: LoadedModel, field: str) -> None:
        """Refuse ``field`` for a model that has no end token it can write."""
        if not any(0 <= token < loaded.info.vocab_size for token in loaded.backend.tokenizer.eos_ids):
            raise ResponseFormatUnsupported(
                f"{loaded.record.name!r} cannot write an end token, so a document of it would never be complete.",
                param=field,
                remedy=f"Leave {field} out, or use a model whose weights know its end token.",
            )

    def _offered(
        self, request: GenerationRequest, loaded: LoadedModel
    ) -> tuple[GenerationRequest, tuple[str, ...], tuple[str, ...]]:
        """``request`` with the tools that the model is shown, the names of the others, and notes."""
        if request.tools is None:
            return request, (), ()
        most = self._settings.DESCRIBE_TOOLS_MAX_TOKENS
        shown = shown_tools(request.tools, loaded.backend.tokenizer, loaded.info.context_length, most)
        return replace(request, tools=shown.tools), shown.left_out, shown.notes

    def _conversations(
        self, loaded: LoadedModel, request: GenerationRequest
    ) -> tuple[list[PreparedPrompt], tuple[str, ...], tuple[bool, ...]]:
        """Each conversation's prompt, notes on all of them, and which are continued. One that fails fails all."""
        tokenizer = loaded.backend.tokenizer
        prompts: list[PreparedPrompt] = []
        notes: dict[str, None] = {}
        continues: list[bool] = []
        for place, chat in enumerate(_conversations_of(request)):
            try:
                try:
                    offered = () if request.tools is None else request.tools.offered
                    prompt, more, continued = prepare_chat(tokenizer, chat, loaded.info.context_length, offered)
                except TextTooLong as error:
                    raise self._too_long(request, loaded, error.tokens, 0, at_least=True) from error
                check_readable(tokenizer, prompt.token_ids, loaded.info.readable_ids, "messages")
            except MillmError as error:
                raise numbered(error, request.label, place) from error
            prompts.append(prompt)
            notes.update(dict.fromkeys(more))
            continues.append(continued)
        return prompts, tuple(notes), tuple(continues)

    def compile_constraint(self, model: str, asked: ResponseFormat) -> Future[CompiledConstraint]:
        """Begin to compile ``asked`` for the resident model; :meth:`prepare` then finds it at once.

        For a caller that may leave meanwhile: cancelling the future is leaving. Raises :class:`ModelNotLoaded`; the
        future raises :class:`ResponseFormatUnsupported`.
        """
        return self._constraints.begin(self._resident(model).backend.tokenizer, asked)

    def begin_compiling(self, request: GenerationRequest) -> Future[Any] | None:
        """Begin to compile what the answer to ``request`` is held to for the resident model; :meth:`prepare` then finds
        it at once. None: it is held to nothing. As :meth:`compile_constraint`.
        """
        loaded = self._resident(request.model)
        tokenizer = loaded.backend.tokenizer
        request = self._offered(request, loaded)[0]
        if request.tools is not None:
            form = tool_form(tokenizer)
            return self._constraints.begin(tokenizer, grammar_of(request.tools, form, request.response_format))
        if request.response_format is None:
            return None
        return self._constraints.begin(tokenizer, request.response_format)

    def submit(self, prepared: PreparedRequest, sink: Callable[[Delta], None]) -> RequestHandle:
        """Queue a prepared request; ``sink`` gets its deltas on the engine thread and must return at once.

        Raises :class:`QueueFull`, :class:`ModelBusy` while the model is being unloaded or was replaced since
        ``prepare``.
        """
        self._check_resident(prepared.loaded)
        return self._scheduler.submit(prepared, self.observers.watch(sink), self._thread.wake)

    def submit_together(self, asked: Sequence[tuple[PreparedRequest, Callable[[Delta], None]]]) -> list[RequestHandle]:
        """Queue requests that are compared with each other, all or none; as :meth:`submit` for each."""
        for prepared, _sink in asked:
            self._check_resident(prepared.loaded)
        watched = [(prepared, self.observers.watch(sink)) for prepared, sink in asked]
        return self._scheduler.submit_all(watched, self._thread.wake)

    # --- scoring and embeddings -------------------------------------------------------------------------------------

    def prepare_scoring(self, request: ScoringRequest) -> PreparedScoring:
        """Render and tokenize every prompt of ``request``; nothing runs yet.

        Raises as :meth:`prepare`, and :class:`InvalidScoringRequest` for a token outside the vocabulary or a prompt
        without tokens, :class:`NoChatTemplate` for conversations. With several inputs the message ends with
        ``(prompt i)`` or ``(conversation i)``.
        """
        loaded = self._resident(request.model)
        given, unread = settled(loaded.backend.tokenizer, request.input)
        request = replace(request, input=given)
        if not isinstance(request.input, TextInput) and request.input:
            unread = (*unread_variables(loaded.backend.tokenizer, request.input[0].template_kwargs), *unread)
        check_vocabulary(request.allowed_token_ids, loaded.info.vocab_size)
        check_bias(request.logit_bias, loaded.info.vocab_size)
        count = len(request.input.prompts) if isinstance(request.input, TextInput) else len(request.input)
        if not count:
            field = "prompt" if isinstance(request.input, TextInput) else "messages"
            raise InvalidParameter(f"'{field}' holds nothing to score.", param=field)
        prompts: list[PreparedPrompt] = []
        notes: list[str] = []
        for place in range(count):
            try:
                prompt, more = self._scored_prompt(request, loaded, place)
                field = "prompt" if isinstance(request.input, TextInput) else "messages"
                check_readable(loaded.backend.tokenizer, prompt.token_ids, loaded.info.readable_ids, field)
            except MillmError as error:
                raise numbered(error, request.label if count > 1 else None, place) from error
            prompts.append(prompt)
            notes.extend(note for note in more if note not in notes)
        capture = None
        if request.activations is not None:
            texts = isinstance(request.input, TextInput)
            require_one_answer(choices=1, prompts=count if texts else 1, extra_messages=not texts and count > 1)
            capture = resolve_capture(
                request.activations,
                self._desk.state.attachments,
                len(prompts[0].token_ids),
                1,
                limits=CaptureLimits.from_settings(self._settings),
                scoring=True,
            )
        return PreparedScoring(request, loaded, tuple(prompts), capture, tuple(notes), unread)

    def score(self, prepared: PreparedScoring) -> Future[Scored]:
        """Queue a scoring request; cancelling the future ends it, queued or running. Raises as :meth:`submit`.

        The future raises :class:`NonFiniteLogits`, :class:`InsufficientMemory`, :class:`RequestCancelled` when the
        program ends, :class:`ModelBusy` when the model is taken away.
        """
        return self._read(Scoring(prepared), "scoring")

    def prepare_embeddings(self, request: EmbeddingRequest) -> PreparedEmbeddings:
        """Tokenize every text of ``request`` and measure all of them; nothing runs yet.

        Raises as :meth:`prepare`; :class:`ContextLengthExceeded` names up to 16 texts that are too long.
        """
        request.check_count(self._settings.EMBEDDINGS_MAX_INPUTS)
        loaded = self._resident(request.model)
        window, readable = loaded.info.context_length, loaded.info.readable_ids
        token_ids = tokenize(loaded.backend.tokenizer, request, readable, window, loaded.record.name)
        return PreparedEmbeddings(request, loaded, token_ids)

    def embed(self, prepared: PreparedEmbeddings) -> Future[Embedded]:
        """Queue an embeddings request; as :meth:`score`. The future raises :class:`EmbeddingVectorInvalid` too."""
        return self._read(Embedding(prepared), "embeddings")

    def _read(self, reading: PrefillJob[T], work: Work) -> Future[T]:
        self._check_resident(reading.loaded)
        self._scheduler.submit_reading(reading, self._thread.wake)
        self.observers.watch_reading(reading.future, work)
        return reading.future

    @staticmethod
    def _scored_prompt(
        request: ScoringRequest, loaded: LoadedModel, place: int
    ) -> tuple[PreparedPrompt, tuple[str, ...]]:
        window, at_least = loaded.info.context_length, ""
        try:
            prompt, notes = prepare_input(
                loaded.backend.tokenizer, request, loaded.record.name, place, window, loaded.info.readable_ids
            )
        except TextTooLong as error:
            length, at_least = error.tokens, "at least "
        else:
            length = len(prompt.token_ids)
            if length + 1 <= window:
                return prompt, notes
        raise ContextLengthExceeded(
            f"The prompt has {at_least}{so_many(length, 'token')} and max_tokens asks for 1; the context window of "
            f"{loaded.record.name!r} is {so_many(window, 'token')}.",
            details={"context_length": window, "prompt_tokens": length, "max_tokens": 1},
            remedy="Shorten the prompt.",
        )

    # --- the queue --------------------------------------------------------------------------------------------------

    def waiting_for_load(self) -> AbstractContextManager[None]:
        """A queue place for a request whose model is being loaded. Entering it raises :class:`QueueFull`."""
        return self._scheduler.waiting_for_load()

    def stats(self) -> QueueStats:
        """The queue's figures now."""
        return self._scheduler.stats()

    def pace(self) -> Pace:
        """How fast prompts are read and answers written."""
        return self._scheduler.pace()

    def _steering(self, request: GenerationRequest) -> ResolvedSteering:
        now = self._desk.now
        if request.steering.is_empty:
            return ResolvedSteering(None, now.plan)
        return resolve(request.steering, now.state, now.plan, self._find_profile, self._bounds)

    def _find_profile(self, name: str) -> StoredProfile | None:
        record = self._profiles.by_name(name)
        return None if record is None else read_stored(record, self._saes.feature_count)

    def _capture(
        self, request: GenerationRequest, prompts: list[PreparedPrompt], caps: tuple[int, ...]
    ) -> CapturePlan | None:
        if request.activations is None:
            return None
        extra = request.conversations > 1
        require_one_answer(choices=request.choices_written, prompts=1 if extra else len(prompts), extra_messages=extra)
        return resolve_capture(
            request.activations,
            self._desk.state.attachments,
            len(prompts[0].token_ids),
            caps[0],
            limits=CaptureLimits.from_settings(self._settings),
            first_position_steered=self._settings.STEER_FIRST_POSITION,
        )

    def _check_resident(self, loaded: LoadedModel) -> None:
        if self._shelf.resident is not loaded:
            raise ModelBusy(
                f"The model {loaded.record.name!r} was unloaded before the request could start.", retry_after=5
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

    def _caps(self, request: GenerationRequest, loaded: LoadedModel, prompts: list[PreparedPrompt]) -> tuple[int, ...]:
        caps: list[int] = []
        for place in range(len(prompts)):
            try:
                caps.append(self._cap(request, loaded, prompts, place))
            except MillmError as error:
                # Of several raw prompts the message names the one that is too long by itself.
                label = request.label if request.conversations > 1 else None
                raise numbered(error, label, place) from error
        return tuple(caps)

    @staticmethod
    def _too_long(
        request: GenerationRequest, loaded: LoadedModel, length: int, place: int, *, at_least: bool = False
    ) -> ContextLengthExceeded:
        window, asked = loaded.info.context_length, request.max_tokens
        which = f"Prompt {place}" if request.label == "prompt" else "The prompt"
        tail = f" and max_tokens asks for {asked}" if asked is not None else ""
        has = f"has at least {length}" if at_least else f"has {length}"
        return ContextLengthExceeded(
            f"{which} {has} tokens{tail}; the context window of {loaded.record.name!r} is {window} tokens.",
            details={"context_length": window, "prompt_tokens": length, "max_tokens": asked},
            remedy="Shorten the prompt or ask for fewer tokens.",
        )

    def _cap(self, request: GenerationRequest, loaded: LoadedModel, prompts: list[PreparedPrompt], place: int) -> int:
        window = loaded.info.context_length
        length = len(prompts[place].token_ids)
        asked = request.max_tokens
        usual = DEFAULT_CAP if isinstance(request.input, FillInput) else self._settings.DEFAULT_MAX_TOKENS
        most = window if request.unlimited else usual
        cap = asked if asked is not None else min(window - length, most)
        if length + (cap if asked == 0 else max(cap, 1)) > window:
            raise self._too_long(request, loaded, length, place)
        if request.sampling.min_tokens > cap:
            raise InvalidParameter(
                f"Invalid value for 'min_tokens': {request.sampling.min_tokens} is above the cap "
                f"of {so_many(cap, 'token')}.",
                param="min_tokens",
            )
        return cap


def _parted(loaded: LoadedModel, prompts: Sequence[PreparedPrompt]) -> tuple[tuple[int, ...], ...]:
    """Where the reading of each of ``prompts`` pauses, so that their common beginnings are read once."""
    backend = loaded.backend
    if not (backend.capabilities.copies_lone or backend.capabilities.cuts_lone):
        return ()
    fewest = FEWEST if backend.device.type == "cpu" else FEWEST_ON_A_GPU
    return where_to_part([prompt.token_ids for prompt in prompts], fewest)


def check_bias(bias: Mapping[int, float], vocab_size: int) -> None:
    """Raises :class:`InvalidParameter` for a token id outside the vocabulary."""
    for token in bias:
        if token >= vocab_size:
            raise InvalidParameter(
                f"Invalid value for 'logit_bias': token id {token} is outside the vocabulary of {vocab_size} tokens.",
                param="logit_bias",
            )


def _conversations_of(request: GenerationRequest) -> tuple[ChatInput, ...]:
    given = request.input
    if isinstance(given, TextInput):
        raise TypeError("a text is no conversation")
    return given if isinstance(given, tuple) else (given,)
