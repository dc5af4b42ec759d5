"""A card that this installation cannot compute on: what is said for what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.hardware.unused_gpus import SeenGpus, cards_in, judge, look, torch_build

H200 = ("NVIDIA H200",)
PLAIN, CUDA = "2.13.0+cpu", "2.13.0+cu130"


@pytest.mark.parametrize(
    "seen",
    [
        SeenGpus(),
        SeenGpus((), PLAIN, None, False, False),
        SeenGpus(H200, CUDA, "13.0", True, True),
        SeenGpus(H200, CUDA, "13.0", None, None),
        SeenGpus(H200, None, None, None, True),
    ],
)
def test_nothing_is_said_without_a_card_or_where_all_can_use_it(seen: SeenGpus) -> None:
    assert judge(seen) is None


def test_a_build_without_cuda_and_the_way_to_one_with_it() -> None:
    found = judge(SeenGpus(H200, PLAIN, None, False, None))
    assert found is not None
    assert found.problem == (
        "This machine has an NVIDIA card (NVIDIA H200): PyTorch 2.13.0+cpu was built without CUDA, so transformers "
        "models run on the processor."
    )
    assert "make setup TORCH_INDEX_URL=https://download.pytorch.org/whl/cu" in found.remedy
    assert "Which PyTorch" in found.remedy
    assert found.in_words() == f"{found.problem} {found.remedy}"


def test_a_driver_that_the_build_does_not_get_on_with() -> None:
    found = judge(SeenGpus(("NVIDIA A10", "NVIDIA T4"), CUDA, "13.0", False, True))
    assert found is not None and "(NVIDIA A10 and 1 more)" in found.problem
    assert "built for CUDA 13.0, does not get on with its driver" in found.problem
    assert "driver" in found.remedy and "llama.cpp" not in found.in_words()


def test_llama_cpp_without_a_gpu_is_said_beside_it_or_alone() -> None:
    both = judge(SeenGpus(H200, PLAIN, None, False, False))
    assert both is not None and "built without CUDA" in both.problem
    assert "llama.cpp was compiled without a GPU, so GGUF models run on the processor" in both.problem
    alone = judge(SeenGpus(H200, CUDA, "13.0", True, False))
    assert alone is not None and "PyTorch" not in alone.problem and "GGML_CUDA=on" in alone.remedy


def test_an_installed_program_is_not_told_to_run_make() -> None:
    found = judge(SeenGpus(H200, PLAIN, None, False, False, frozen=True))
    assert found is not None and "make " not in found.in_words() and "from its source" in found.remedy


def test_cards_by_the_kernels_driver(tmp_path: Path) -> None:
    assert cards_in(tmp_path / "none") == ()
    for place, text in (
        ("0000:01:00.0", "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 1\n"),
        ("0000:02:00.0", "IRQ: 2\n"),
    ):
        (tmp_path / place).mkdir()
        (tmp_path / place / "information").write_text(text)
    assert cards_in(tmp_path) == ("NVIDIA GeForce RTX 4090", "NVIDIA")


def test_what_torch_says_of_its_build(tmp_path: Path) -> None:
    """Both notes are as torch ships them."""
    assert torch_build(None) == torch_build(tmp_path) == (None, None)
    note = tmp_path / "version.py"
    head = "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
    note.write_text(head + "__version__ = '2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip = None\n")
    assert torch_build(tmp_path) == ("2.13.0+cpu", None)
    note.write_text(head + "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    assert torch_build(tmp_path) == ("2.13.0+cu130", "13.0")


def test_this_installation_is_read_as_torch_itself_says() -> None:
    import torch

    seen = look()
    assert (seen.torch, seen.torch_cuda) == (torch.__version__, torch.version.cuda)
    assert seen.torch_sees is torch.cuda.is_available()
