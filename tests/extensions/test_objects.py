"""Functions of an extension that take Python's lists, dicts and objects, and what torch/extension.h composes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad import errors

from .conftest import FOLDER

EQUATIONS = (
    ("ij,jk->ik", "ab,bc"), ("bij,bjk->bik", "abc,acd"), ("ij->ji", "ab"), ("ii->i", "aa"), ("ij,ij->", "ab,ab"),
    ("i,j->ij", "a,b"), ("bi,bj,ij->b", "ab,ac,bc"), ("ij,kj", "ab,cb"), ("ij->", "ab"), ("i,i,i->i", "a,a,a"),
    ("bhqd,bhkd->bhqk", "abcd,abed"), ("ijk,k->ji", "abc,c"), ("...j,kj->...k", "abc,dc"), ("...ij,...jk", "abc,acd"),
    ("i...->...", "abc"), ("...i,j->...ij", "a,b"),
)  # fmt: skip


@pytest.fixture
def extension(kernel_cache: str, tg: Any) -> Any:
    from telegrad.utils.cpp_extension import load

    return load("test_objects", [FOLDER / "objects.cpp"], extra_cflags=["-O0"])


def test_lists_and_dicts_of_anything_come_and_go(tg: Any, extension: Any) -> None:
    x = tg.tensor([1.0, 2.0])
    tensor, number, text, nothing, inner = extension.doubled([x, 1.5, "text", None, [1, (2, True)]])
    assert tensor.tolist() == [2, 4] and (number, text, nothing, inner) == (3.0, "text", None, [1, (2, True)])
    assert extension.described(None) == {"is_none": True, "count": 0, "has_size": False, "pair": (1, "two", 2.5, None)}
    told = extension.described(x, {"size": [2, 3], "x": x, 5: tg.float64, "z": 1 + 2j})
    assert told.pop("x").tolist() == [1, 2]
    assert told == {
        "is_none": False, "count": 4, "has_size": True, "sizes": [2, 3], "size": [2, 3], 5: tg.float64, "z": 1 + 2j,
        "pair": (1, "two", 2.5, None),
    }  # fmt: skip
    first, (same, more) = extension.split_in_two(("a", x))
    assert (first, same.tolist(), more.tolist()) == ("a", [1, 2], [2, 3])
    assert extension.total() == extension.total(None) == 0 and extension.total([1, 2, 3]) == 6
    assert extension.__doc__ == "Objects of Python." and "options: dict = {}" in extension.described.__doc__


def test_what_is_no_such_object_is_refused(extension: Any) -> None:
    for wrong in (lambda: extension.doubled(3), lambda: extension.described(1, [2]), lambda: extension.total({})):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            wrong()
    for how, kind in enumerate((ValueError, IndexError, TypeError, TypeError)):
        with pytest.raises(kind) as caught:
            extension.refuses(how)
        assert isinstance(caught.value, errors.TelegradError)
    with pytest.raises(TypeError):
        extension.total(["text"])


def test_families_of_element_types_are_pytorchs(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    a = rng.integers(0, 5, (2, 3)).astype(np.float32)
    families = {
        "float16": 1, "bfloat16": 1, "float32": 2, "float64": 2, "complex64": 2, "int8": 3, "int64": 3, "bool": 3,
    }  # fmt: skip
    for name, family in families.items():
        x, y = tg.tensor(a).to(getattr(tg, name)), torch.tensor(a).to(getattr(torch, name))
        assert extension.family(x) == family
        expected = torch.view_as_real(y * y) if y.is_complex() else (y * y).double()
        got = extension.squared(x)
        assert str(got.dtype).endswith(name)
        assert np.array_equal((tg.view_as_real(got) if got.is_complex() else got.double()).numpy(), expected.numpy())
    with pytest.raises(NotImplementedError, match='"family" not implemented for'):
        extension.family(tg.ones(2, dtype=tg.uint16))


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[pair[0] for pair in EQUATIONS])
def test_sums_of_products_are_numpys(
    tg: Any, extension: Any, rng: np.random.Generator, equation: str, shapes: str
) -> None:
    sizes = dict(zip("abcde", (2, 3, 4, 5, 6), strict=True))
    operands = [rng.standard_normal([sizes[letter] for letter in own]) for own in shapes.split(",")]
    expected = np.einsum(equation, *operands)
    got = extension.einsum(equation, [tg.tensor(one) for one in operands])
    assert got.shape == expected.shape and np.allclose(got.numpy(), expected)


def test_sums_of_products_that_do_not_fit_are_refused(tg: Any, extension: Any) -> None:
    for equation in ("ij,jk->ik", "ijk->i", "...ijk->i"):
        with pytest.raises(RuntimeError, match="einsum"):
            extension.einsum(equation, [tg.ones(2, 3)])


def test_what_is_composed_is_pytorchs(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    x, w = torch.tensor(a), torch.tensor(b)
    expected = [
        *torch.native_layer_norm(x, [4], w, None, 1e-5), *torch.meshgrid(x[0], w, indexing="xy"),
        torch.tensordot(x, x, ([0], [0])), torch.column_stack([w, x.t()]), torch.broadcast_tensors(w, x)[0],
        torch.diagflat(w), torch.nn.functional.logsigmoid(x), x[[2, 0]], (x.abs() * 3).clip(0, 1), x.quantile(0.5, 1),
    ]  # fmt: skip
    got = extension.composed(tg.tensor(a), tg.tensor(b))
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == tuple(other.shape) and np.allclose(one.numpy(), other.numpy(), atol=1e-5)


def test_what_is_written_to_parts_and_outputs_is_pytorchs(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    x = torch.tensor(rng.standard_normal((3, 4)).astype(np.float32))
    a, c = x.clone(), x.clone()
    a[0], a[1, 0], c[:, 1] = x[1] * 2, 5, 4
    a[:, 1:2] = x[:, :1]
    rounded = x.round()
    expected = [
        a, x * x, c, *torch.unique(rounded, return_inverse=True, return_counts=True),
        *torch.unique_consecutive(rounded, return_inverse=True, return_counts=True),
        torch.unique_consecutive(rounded), torch.pow(2, x), x.norm(2, [1], True), x.sum(dtype=torch.float64),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.arange(1, 7).view(3, 2).t().float(),
        torch.conv2d(x[None, None], torch.ones(1, 1, 2, 2), None, 1, 1), x.softmax(1),
    ]  # fmt: skip
    got = extension.written(tg.tensor(x.numpy()))
    assert len(got) == len(expected)
    for place, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert one.shape == tuple(other.shape) and str(one.dtype).split(".")[1] == str(other.dtype).split(".")[1], place
        assert np.allclose(one.numpy(), other.numpy(), atol=1e-5), place
    assert extension.described_type(tg.ones(2)) == "float Float Strided CPUFloatType 1 4"
    assert extension.described_type(tg.ones(2, dtype=tg.int64)).startswith("long int Long")
