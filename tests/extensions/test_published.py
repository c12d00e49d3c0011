"""What published extensions use of PyTorch's headers beside tensors: checks, lists, formats, operators from C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad import errors

from .conftest import FOLDER


@pytest.fixture
def extension(kernel_cache: str, tg: Any) -> Any:
    from telegrad.utils.cpp_extension import load

    return load("test_published", [FOLDER / "published.cpp"], extra_cflags=["-O0"])


def _tour(x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
    """Return what ``tour`` of the extension computes."""
    pool = torch.nn.functional.max_pool2d
    counts = torch.bincount(n, minlength=4).float()
    shuffled = x.repeat(1, 2).view(1, 4, 1, 3)
    covered = x.clone()
    covered[:, n.clamp(0, 2)] = 0
    return [
        counts, counts, covered, x[None], x.long().double(), x + 1, torch.tensor([[0, 2], [1, 3]]).float(),
        x.sum(0, True), torch.tensor([[[15, 1], [2, 3]]]), torch.tensor([True, False]), torch.full((1, 2, 2, 3), 2.0),
        torch.full((1, 2, 2, 3), 3.0), torch.fft.fft(x).abs() + x.norm() + x.sigmoid(), shuffled,
        torch.cdist(x, x) + 3, torch.block_diag(x, n.float()), torch.tril_indices(3, 3), torch.cartesian_prod(n, n),
        (x + 2).asin().nan_to_num(5), pool(x.view(1, 1, 2, 3), 2, 1, return_indices=True)[1], x.sum(1),
        torch.tensor([1, 2.5, 4]), (x > 0).long() + (n > 0).sum(), x.abs().fill_diagonal_(7)[:, :2],
        torch.stack([n, torch.cat([n[1:], torch.tensor([-1])])]),
    ]  # fmt: skip


def test_names_of_pytorchs_headers_compute_what_pytorch_computes(
    tg: Any, extension: Any, rng: np.random.Generator
) -> None:
    a, n = rng.standard_normal((2, 3)).astype(np.float32) * 2, rng.integers(0, 3, 3)
    expected = _tour(torch.tensor(a), torch.tensor(n))
    results = extension.tour(tg.tensor(a), tg.tensor(n))
    assert len(results) == len(expected)
    for place, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1], place
        assert np.allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5), place
    assert results[10].is_contiguous(memory_format=tg.channels_last)
    assert extension.facts(tg.tensor(a)) == (
        "TensorOptions(dtype=float, device=cpu, layout=Strided, requires_grad=false (default), "
        "pinned_memory=false (default), memory_format=(nullopt)) Contiguous 2x3 Float Float "
        "2 -2 5 [ CPUFloatType[2, 3] ] 0"
    )


@pytest.mark.parametrize(
    ("which", "error", "message"),
    [
        ("type", RuntimeError, "Expected tensor for argument #1 'input' to have the same type as tensor for argument "
         "#2 'rois'; but type CPUFloatType does not equal CPULongType (while checking arguments for check)"),
        ("size", RuntimeError, "argument #1 'input' to have same size as tensor for argument #2 'rois'"),
        ("dim", RuntimeError, "Expected 3-dimensional tensor, but got 2-dimensional tensor for argument #1 'input'"),
        ("sizes", RuntimeError, r"Expected tensor of size [2, 5], but got tensor of size [2, 3]"),
        ("contiguous", RuntimeError, "but got non-contiguous tensor for argument #2 'rois'"),
        ("index", IndexError, "thrown"),
        ("value", ValueError, "no 3"),
        ("range", ValueError, "out of it"),
        ("singular", errors.LinearAlgebraError, "singular"),
        ("wrap", IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 4)"),
        ("expand", RuntimeError, "must match the size of tensor b (2) at non-singleton dimension 1"),
    ],
)  # fmt: skip
def test_checks_of_arguments_refuse_in_pytorchs_words(
    tg: Any, extension: Any, which: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        extension.check(tg.ones(2, 3), tg.ones(2, 3, dtype=tg.long).t(), which)
    assert message in str(raised.value)


def test_lists_dicts_and_objects_of_the_dispatcher_travel(tg: Any, extension: Any) -> None:
    made = extension.halves({"a": tg.tensor([2.0, 4.0])}, [3, 1])
    assert {name: value.tolist() for name, value in made.items()} == {"a": [1, 2], "sizes": [3, 1]}
    assert extension.named(4) == {"first": 4, "text": "text"} and extension.counted() == 4


def test_an_argument_keeps_its_sizes(tg: Any, extension: Any) -> None:
    assert extension.resize_argument(tg.ones(3), 3).tolist() == [1, 1, 1]
    with pytest.raises(errors.ExtensionError, match=r"cannot get other sizes than \[3\]; return a new tensor"):
        extension.resize_argument(tg.ones(3), 4)


def test_operators_call_each_other_from_cpp(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    a = rng.standard_normal(4)
    for call in (tg.ops.telegrad_published.cube, tg.ops.telegrad_registered.cube, extension.cube):
        x = tg.tensor(a, requires_grad=True)
        call(x).sum().backward()
        assert np.allclose(call(x).detach().numpy(), a**3) and np.allclose(x.grad.numpy(), 3 * a**2)
    plus = tg.ops.telegrad_registered.plus(tg.tensor(a), tg.tensor(a))
    assert np.allclose(plus.numpy(), 3 * a)
