"""lm-evaluation-harness with our server: its log-likelihoods held against transformers' own. Part of ``try_clients``.

The harness runs the task beside this file as the example on docs/clients.md does, once with token ids and once with
text. What it found for each answer is then computed here by one plain forward of the same weights.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = "SmolLM2-135M-Instruct"
CLOSE = 1e-3
"""How far the sum of an answer's log-probabilities may be off, in nats: some ten tokens in float32."""

_KEEP = """
import json, sys
samples = found["samples"]["two_ways"]
json.dump([[each["arguments"], each["filtered_resps"]] for each in samples], open(sys.argv[1], "w"))
"""
_AS_TEXT = ('"tokenizer": folder', '"tokenizer": folder, "tokenized_requests": False')


def try_it(python: Path, address: str, example: str) -> list[str]:
    """Run ``example``, which is for ``address``, both ways; what failed, in words."""
    known = json.load(urllib.request.urlopen(f"{address}/api/models", timeout=60))["data"]
    folder = next(each["local_path"] for each in known if each["name"] == MODEL)
    failed = []
    expected: list[tuple[float, bool]] = []
    for way, code in (("token ids", example), ("text", example.replace(*_AS_TEXT))):
        with tempfile.TemporaryDirectory() as scratch:
            script, out = Path(scratch, "example.py"), Path(scratch, "samples.json")
            script.write_text(code + _KEEP, encoding="utf-8")
            done = subprocess.run(
                [python, script, out], capture_output=True, text=True, timeout=900, check=False, cwd=ROOT
            )
            if done.returncode:
                failed.append(f"the harness, by {way}: {done.stderr[-2000:]}")
                continue
            samples = json.loads(out.read_text(encoding="utf-8"))
        pairs = [tuple(pair) for arguments, _found in samples for pair in arguments]
        found = [(float(each[0]), str(each[1]) == "True") for _arguments, answers in samples for each in answers]
        expected = expected or own(folder, pairs)
        worst = max(abs(mine - theirs) for (mine, _), (theirs, _) in zip(found, expected, strict=True))
        likeliest = sum(mine != theirs for (_, mine), (_, theirs) in zip(found, expected, strict=True))
        print(f"{done.stdout.strip()}; by {way}, {len(found)} answers, at most {worst:.1e} from transformers' own")
        if worst > CLOSE or likeliest:
            failed.append(f"by {way}: {worst:g} from transformers' own, {likeliest} answers otherwise likeliest")
    return failed


def own(folder: str, pairs: list[Any]) -> list[tuple[float, bool]]:
    """For each (context, answer) the answer's log-likelihood, and whether each of its tokens is the likeliest."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for context, answer in pairs:
        ids = tokenizer(context + answer, add_special_tokens=False).input_ids
        start = len(tokenizer(context, add_special_tokens=False).input_ids)
        with torch.inference_mode():
            rows = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        places = range(start, len(ids))
        likely = sum(float(rows[place - 1, ids[place]]) for place in places)
        found.append((likely, all(int(rows[place - 1].argmax()) == ids[place] for place in places)))
    return found
