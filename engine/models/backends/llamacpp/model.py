"""The weights of one GGUF file, or of a split set, in memory: loading, facts, and freeing.

Every call that touches them takes the lock and finds out first whether they are still there: tokenizing goes on in
other threads while the engine thread unloads.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.errors import EngineUnsupported, ModelBusy, ModelLoadFailed
from engine.models.backends.llamacpp.binding import complaints, forget_complaints, library
from engine.models.backends.load_progress import Report

ALL_LAYERS = -1


class LlamaModel:
    """A loaded ``llama_model``. Build it with :meth:`load`; ``close`` may be called twice."""

    def __init__(self, pointer: Any, path: Path) -> None:
        llama = library()
        self._pointer = pointer
        self._lock = threading.RLock()
        self.path = path
        self.n_layers = int(llama.llama_model_n_layer(pointer))
        self.d_model = int(llama.llama_model_n_embd(pointer))
        self.d_output = int(llama.llama_model_n_embd_out(pointer))
        self.nbytes = int(llama.llama_model_size(pointer))
        self.params = int(llama.llama_model_n_params(pointer))
        self.vocab = llama.llama_model_get_vocab(pointer)
        self.vocab_size = int(llama.llama_vocab_n_tokens(self.vocab))
        self.keeps_state = bool(llama.llama_model_is_recurrent(pointer) or llama.llama_model_is_hybrid(pointer))
        """Whether some layers keep a running state, which cannot be cut at a token."""

    @classmethod
    def load(cls, path: Path, gpu_layers: int, report: Report) -> LlamaModel:
        """Read the weights at ``path`` (of a split set, its first file).

        ``report`` is called with (share 0–1, stage); an error it raises ends the load. ``gpu_layers``: 0 none,
        :data:`ALL_LAYERS` all. Raises :class:`ModelLoadFailed` with llama.cpp's own words, :class:`EngineUnsupported`
        for a model that does not write text one token after another.
        """
        llama = library()
        raised: list[BaseException] = []
        told = -1

        def progress(share: float, user_data: object) -> bool:
            nonlocal told
            if int(share * 100) == told:
                # It is called for every tensor.
                return True
            told = int(share * 100)
            try:
                report(share, "Reading the weights")
            except BaseException as error:
                raised.append(error)
                return False
            return True

        params = llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        callback = llama.llama_progress_callback(progress)
        params.progress_callback = callback
        none: Any = (ctypes.c_void_p * 1)()
        if gpu_layers == 0:
            # An empty list of devices: otherwise a GPU build computes large batches there all the same.
            params.devices = ctypes.cast(none, ctypes.c_void_p)
        forget_complaints()
        pointer = llama.llama_model_load_from_file(str(path).encode(), params)
        if raised:
            if pointer:
                llama.llama_model_free(pointer)
            raise raised[0]
        if not pointer:
            raise ModelLoadFailed(
                f"llama.cpp could not load {path.name}.{complaints()}",
                details={"path": str(path)},
                remedy="Update llama-cpp-python if the model is newer than it is; otherwise download the file again.",
            )
        try:
            _refuse_other_kinds(llama, pointer, path)
            return cls(pointer, path)
        except BaseException:
            llama.llama_model_free(pointer)
            raise

    @contextmanager
    def held(self) -> Iterator[Any]:
        """The pointer, which stays good inside the block. Raises :class:`ModelBusy` when the model is gone."""
        with self._lock:
            if self._pointer is None:
                raise ModelBusy("The model was unloaded meanwhile.", remedy="Send the request again.", retry_after=5)
            yield self._pointer

    def call(self, function: Callable[[Any], Any]) -> Any:
        """What ``function`` gives for the vocabulary's pointer, while the model is held."""
        with self.held():
            return function(self.vocab)

    def entry(self, key: str) -> str | None:
        """A value of the file's header as text."""
        llama = library()
        size = 1024
        with self.held() as pointer:
            while True:
                buffer = ctypes.create_string_buffer(size)
                length = int(llama.llama_model_meta_val_str(pointer, key.encode(), buffer, size))
                if length < 0:
                    return None
                if length < size:
                    return buffer.value.decode("utf-8", "replace")
                size = length + 1

    @property
    def architecture(self) -> str:
        """llama.cpp's word for the family, such as ``llama``."""
        return self.entry("general.architecture") or "unknown"

    @property
    def chat_template(self) -> str | None:
        """The file's own template, or None."""
        with self.held() as pointer:
            found = library().llama_model_chat_template(pointer, None)
        return found.decode("utf-8", "replace") if found else None

    def close(self) -> None:
        """Free the weights. Whoever asks afterwards is told that the model is gone."""
        with self._lock:
            pointer, self._pointer = self._pointer, None
            if pointer is not None:
                library().llama_model_free(pointer)


def _refuse_other_kinds(llama: Any, pointer: Any, path: Path) -> None:
    if llama.llama_model_has_encoder(pointer):
        kind = "reads with an encoder"
    elif not llama.llama_model_has_decoder(pointer):
        kind = "has no decoder"
    elif llama.llama_model_is_diffusion(pointer):
        kind = "writes by diffusion"
    else:
        return
    raise EngineUnsupported(
        f"{path.name} holds a model that {kind}; only models that write one token after another are run here.",
        param="model",
        remedy="Use a decoder-only model.",
    )
