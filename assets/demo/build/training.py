"""Top-k SAEs on the harvested tokens, the layers side by side, while more are still being harvested.

The layers share their seed and their batches, so most indices come to mean the same on each of them. Gradients are
written out: only k of d_sae features are active at a token, and products with sparse matrices do in milliseconds what
dense ones do in a tenth of a second. Saved in SAELens' layout with decoder rows of length 1, so that a steering
strength is the length of what is added to the stream.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from assets.demo.build.chunks import chunk_files, load_chunk
from assets.demo.build.settings import MODEL_ID, MODEL_NAME, Build, full_build, tiny_build

BATCH = 1024
LEARNING_RATE = 1e-3
WARM_UP = 30
DEAD_AFTER = 200_000
"""Tokens without a single firing after which a feature counts as dead in training."""


class Pool:
    """The training tokens so far, per layer, as float16 [n, d_model]; takes in chunks as they appear."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._taken: set[Path] = set()
        self._parts: dict[int, list[Tensor]] = {layer: [] for layer in build.layers}
        self._starts = [0]

    def refresh(self) -> int:
        """Load new chunks; the number of training tokens."""
        for path in chunk_files(self._build.activations):
            if path in self._taken:
                continue
            chunk = load_chunk(path)
            train = chunk["held_out"] == 0
            for layer in self._build.layers:
                self._parts[layer].append(chunk[f"layer_{layer}"][train])
            self._starts.append(self._starts[-1] + int(train.sum()))
            self._taken.add(path)
        return self._starts[-1]

    @property
    def size(self) -> int:
        """Training tokens taken in so far."""
        return self._starts[-1]

    def batch(self, numbers: Tensor) -> dict[int, Tensor]:
        """The tokens ``numbers``, float32 [n, d_model] by layer."""
        part = torch.bucketize(numbers, torch.tensor(self._starts[1:]), right=True)
        found: dict[int, list[Tensor]] = {layer: [] for layer in self._parts}
        for index in part.unique().tolist():
            inside = numbers[part == index] - self._starts[index]
            for layer, parts in self._parts.items():
                found[layer].append(parts[index][inside])
        return {layer: torch.cat(parts).float() for layer, parts in found.items()}


class TopK:
    """One SAE in training, in centred and scaled units: x ↦ (x − mean) · scale."""

    def __init__(self, sample: Tensor, d_sae: int, k: int, seed: int) -> None:
        self.mean = sample.double().mean(dim=0).float()
        self.scale = math.sqrt(sample.shape[1]) / float((sample - self.mean).norm(dim=1).mean())
        generator = torch.Generator().manual_seed(seed)
        rows = F.normalize(torch.randn((d_sae, sample.shape[1]), generator=generator), dim=1)
        self.k = k
        # The encoder is kept transposed, [d_sae, d_model], like the decoder.
        self.encoder, self.decoder = rows.clone(), rows.clone()
        self.b_enc, self.b_dec = torch.zeros(d_sae), torch.zeros(sample.shape[1])
        for tensor in self.parameters:
            tensor.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.parameters, lr=LEARNING_RATE, betas=(0.9, 0.999))
        self.silent = torch.zeros(d_sae)

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [self.encoder, self.decoder, self.b_enc, self.b_dec]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values and indices [n, k] of the active features of ``x`` in training units."""
        before = torch.addmm(self.b_enc, x - self.b_dec, self.encoder.T)
        values, indices = before.topk(self.k, dim=1, sorted=False)
        return values.relu_(), indices

    def decode(self, values: Tensor, indices: Tensor) -> Tensor:
        """The reconstruction, in training units."""
        return F.embedding_bag(indices, self.decoder, per_sample_weights=values, mode="sum") + self.b_dec

    @torch.no_grad()
    def step(self, raw: Tensor, learning_rate: float) -> float:
        """One step on a batch of activations; the share of variance that is left."""
        x = (raw - self.mean) * self.scale
        n, d_sae = len(x), len(self.decoder)
        values, indices = self.encode(x)
        error = self.decode(values, indices) - x
        gradient = error * (2.0 / n)
        # d loss / d value, only where a feature is active: (gradient · decoderᵀ) sampled at the active places.
        indices, order = indices.sort(dim=1)
        values = values.gather(1, order)
        rows = torch.arange(0, n * self.k + 1, self.k)
        places = torch.sparse_csr_tensor(rows, indices.flatten(), torch.zeros(n * self.k), (n, d_sae))
        d_values = torch.sparse.sampled_addmm(places, gradient, self.decoder.T).values().view(n, self.k)
        d_values = d_values * (values > 0)
        self.encoder.grad = _scattered(indices, d_values, x - self.b_dec, d_sae)
        self.decoder.grad = _scattered(indices, values, gradient, d_sae)
        self.b_enc.grad = torch.zeros(d_sae).scatter_add_(0, indices.flatten(), d_values.flatten())
        self.b_dec.grad = gradient.sum(dim=0) - self.b_enc.grad @ self.encoder
        along = (self.decoder.grad * self.decoder).sum(dim=1, keepdim=True)
        self.decoder.grad -= along * self.decoder
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.decoder.copy_(F.normalize(self.decoder, dim=1))
        self.silent += n
        self.silent[indices[values > 0]] = 0
        return float(error.square().sum() / (x - x.mean(dim=0)).square().sum())

    def state(self) -> dict[str, Any]:
        """Everything needed to go on."""
        return {
            "tensors": [tensor.clone() for tensor in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "mean": self.mean,
            "scale": self.scale,
            "silent": self.silent,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        for tensor, saved in zip(self.parameters, state["tensors"], strict=True):
            tensor.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.mean, self.scale, self.silent = state["mean"], state["scale"], state["silent"]


def _scattered(indices: Tensor, values: Tensor, by_row: Tensor, d_sae: int) -> Tensor:
    """Sᵀ · by_row, where S [n, d_sae] holds ``values`` [n, k] at ``indices`` [n, k]; the result is [d_sae, width]."""
    n, k = indices.shape
    order = indices.flatten().argsort(stable=True)
    counts = torch.bincount(indices.flatten(), minlength=d_sae)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    transposed = torch.sparse_csr_tensor(starts, order // k, values.flatten()[order], (d_sae, n))
    return transposed @ by_row


def train(build: Build, *, wait: bool = False) -> None:
    """Train all layers to the planned number of steps; ``wait`` lets the pool grow to its planned size meanwhile."""
    torch.set_num_threads(build.threads)
    planned = build.plain_tokens + build.chat_tokens
    batch = BATCH if not build.test else 128
    pool = Pool(build)
    while pool.refresh() < (planned // 3 if wait else 1):
        if not wait:
            raise SystemExit("nothing was harvested yet: run assets.demo.build.harvest and .chats first")
        time.sleep(10)
    checkpoint = build.state / "training.pt"
    sample = pool.batch(torch.randperm(pool.refresh(), generator=torch.Generator().manual_seed(build.seed))[:50_000])
    saes = {layer: TopK(x, build.d_sae, build.k, build.seed) for layer, x in sample.items()}
    del sample
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        step = saved["step"]
        for layer, sae in saes.items():
            sae.restore(saved["saes"][layer])
    began, first = time.monotonic(), step
    left = dict.fromkeys(saes, 1.0)
    while step < (total := _steps(build, pool.refresh(), planned, batch, wait)):
        generator = torch.Generator().manual_seed(build.seed + 7 * step)
        numbers = torch.randint(pool.refresh(), (batch,), generator=generator)
        for layer, x in pool.batch(numbers).items():
            left[layer] = 0.95 * left[layer] + 0.05 * saes[layer].step(x, _rate(step, total))
        step += 1
        if step % 50 == 0 or step == total:
            speed = (step - first) / (time.monotonic() - began)
            explained = "  ".join(f"{layer}: {1 - each:.3f}" for layer, each in left.items())
            dead = [int((sae.silent > DEAD_AFTER).sum()) for sae in saes.values()]
            print(f"step {step}/{total}, {speed:.2f}/s, {pool.size} tokens, {explained}, dead {dead}", flush=True)
        if step % 200 == 0 or step == total:
            scratch = checkpoint.with_suffix(".part")
            torch.save({"step": step, "saes": {layer: sae.state() for layer, sae in saes.items()}}, scratch)
            scratch.replace(checkpoint)
    facts = {"tokens": pool.size, "steps": step, "batch": batch, "epochs": step * batch / pool.size}
    (build.state / "training.json").write_text(json.dumps(facts))
    for layer, sae in saes.items():
        save(build, layer, sae)


def _steps(build: Build, found: int, planned: int, batch: int, wait: bool) -> int:
    """Steps in all, of the planned tokens while more is awaited; a file ``stop-at`` there overrides it."""
    override = build.state / "stop-at"
    if override.exists():
        return int(override.read_text())
    return math.ceil(build.epochs * (planned * (1 - build.held_out_share) if wait else found) / batch)


def _rate(step: int, total: int) -> float:
    """Warm-up, then level, then falling over the last third."""
    rising = min(1.0, (step + 1) / WARM_UP)
    falling = min(1.0, (total - step) / (total / 3))
    return LEARNING_RATE * rising * max(falling, 0.01)


def save(build: Build, layer: int, sae: TopK) -> None:
    """Write one SAE in SAELens' layout; the folder appears whole."""
    tensors = {
        "W_enc": sae.encoder.T,
        "b_enc": sae.b_enc / sae.scale,
        "W_dec": sae.decoder,
        "b_dec": sae.mean + sae.b_dec / sae.scale,
    }
    config = {
        "architecture": "topk",
        "d_in": sae.encoder.shape[1],
        "d_sae": sae.encoder.shape[0],
        "k": sae.k,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "rescale_acts_by_decoder_norm": False,
        "metadata": {
            "model_name": MODEL_ID,
            "hook_name": f"blocks.{layer}.hook_resid_post",
            "hf_hook_name": f"model.layers.{layer}",
            "prepend_bos": False,
            "context_size": 128,
            "model_class_name": "AutoModelForCausalLM",
            "dataset_path": "Debian packages and the model's own answers; see SOURCES.md",
            "sae_lens_version": "6.54.12",
            "title": f"{MODEL_NAME}, layer {layer}, {build.d_sae} features, k = {build.k}",
        },
    }
    folder = build.sae_folder(layer)
    scratch = folder.with_name(folder.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    half = {name: tensor.contiguous().to(torch.float16) for name, tensor in tensors.items()}
    save_file(half, scratch / "sae_weights.safetensors")
    (scratch / "sae_weights.safetensors").chmod(0o644)
    (scratch / "cfg.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    scratch.replace(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", type=Path, metavar="FOLDER", help="a tiny run, written into FOLDER")
    parser.add_argument("--wait", action="store_true", help="begin before everything is harvested")
    given = parser.parse_args()
    train(full_build() if given.test is None else tiny_build(full_build(), given.test), wait=given.wait)
