"""What PyTorch's own tests of tensors ask for beside samples: memory that is shared, layouts, types of errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from telegrad._programs.private import foreach

from .twins import assert_same, evaluate

INDEXED = [
    "x[i][0] = 5.0", "x[i].add_(1)", "x[i, :].fill_(2)", "x[:, i].fill_(2)", "x[i, i + 1].fill_(2)", "x[(i,)].zero_()",
    "x[i][t.tensor([0, 1])] = 7.0", "[x[a].__setitem__(b, 1.0) for a, b in t.tensor([[0, 1], [2, 0]])]",
    "x[x.sum(1).argmax()].mul_(3)", "x[i.int()].zero_()", "x[i - 2].zero_()",
    "x[i.short()].zero_()", "x[i.to(t.int8)] = 4.0",
]  # fmt: skip


@pytest.mark.parametrize("statement", INDEXED)
def test_what_an_integer_tensor_selects_is_part_of_the_tensor(statement: str, tg: Any) -> None:
    assert_same(*evaluate(f"x, i = t.arange(9.0).reshape(3, 3), t.tensor(1)\n{statement}\nx", tg))
    tracked = f"""
    leaf, i = t.arange(9.0).reshape(3, 3).requires_grad_(), t.tensor(1)
    x = leaf * 1
    {statement}
    (x.sum() * 2).backward()
    leaf.grad
    """
    assert_same(*evaluate(tracked, tg))


@pytest.mark.parametrize("index", ["t.tensor(3)", "t.tensor(-4)", "t.tensor(1.0)"])
def test_integer_tensors_out_of_range_are_refused(index: str, tg: Any) -> None:
    assert_same(*evaluate(f"t.zeros(3, 3)[{index}]", tg))


CALLS = [
    "(t.unique(t.empty(0, 2), dim=0), t.unique(t.empty(2, 0), dim=1, return_counts=True)[1])",
    "(t.diag(t.ones(2, 3), 5), t.diag(t.ones(2, 3), -4), t.block_diag())",
    "(t.combinations(t.arange(3), 0), t.combinations(t.arange(3), 0, True))", "t.combinations(t.arange(3), -1)",
    "t.meshgrid()", "t.tensor(['a'])", "t.tensor([['a', 'b']])", "t.tensor([1, 'a'])", "t.tensor('a')",
    "t.asarray(bytearray(b'abcd'), dtype=t.int16)", "t.asarray(b'abcd')",
    "t.asarray(__import__('array').array('d', [1.0, 2.0]), dtype=t.float64)",
    "__import__('copy').deepcopy(t.strided) is t.strided",
    "__import__('pickle').loads(__import__('pickle').dumps(t.sparse_coo)) is t.sparse_coo",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_what_is_empty_or_refused(call: str, tg: Any) -> None:
    assert_same(*evaluate(call, tg))


LAID_OUT = [
    "x.tril()", "x.triu(1)", "t.normal(x, 1.0)", "t.normal(0.0, x)", "t.normal(x, x)", "t.bernoulli(x)",
    "x.bernoulli(0.5)", "(x + 2).mvlgamma(2)", "t.nn.functional.pixel_shuffle(x, 1)",
    "t.nn.functional.pixel_shuffle(x, 2)", "t.nn.functional.pixel_unshuffle(x, 1)",
    "t.nn.functional.pixel_unshuffle(x, 2)", "t.nn.functional.channel_shuffle(x, 1)",
]  # fmt: skip
ORDERS = [
    "x",
    "x.permute(2, 1, 0, 3)",
    "x.to(memory_format=t.channels_last)",
    "x.to(memory_format=t.channels_last)[:, :, 2:]",
]


@pytest.mark.parametrize("call", LAID_OUT)
@pytest.mark.parametrize("order", ORDERS)
def test_results_lie_in_memory_of_their_own_as_in_pytorch(order: str, call: str, tg: Any) -> None:
    told = f"""
    x = t.rand(4, 8, 4, 4)
    x = {order}
    y = {call}
    (y.shape, y.stride(), y.data_ptr() == x.data_ptr())
    """
    assert_same(*evaluate(told, tg))


ARRAYS = ["np.array([1, 2, 3])", "np.array([1, 2, 3], np.int8)", "np.array([1, 2, 3], np.float32)", "np.ones(3)"]


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "complex64", "uint8"])
def test_numpy_says_which_type_an_array_and_a_tensor_have_together(array: str, dtype: str, tg: Any) -> None:
    program = f"""
    x, a = t.tensor([4, 5, 6]).to(t.{dtype}), {array}
    (x + a, x - a, x * a, x / a)
    """
    assert_same(*evaluate(program, tg))


def test_arrays_become_tensors_with_elements_whatever_device_a_block_names(tg: Any) -> None:
    program = """
    with t.device("meta"):
        made = t.from_numpy(np.arange(3)), t.frombuffer(bytearray(b"ab"), dtype=t.uint8)
    made
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize(
    "call", ["rand(2, out=x)", "randn(3, 3, out=x)", "randint(3, (2,), out=x)", "bernoulli(y, out=x)"]
)
@pytest.mark.filterwarnings("error::UserWarning")
def test_targets_of_random_numbers_are_resized_without_a_warning(call: str, tg: Any) -> None:
    x, y = tg.empty(4), tg.zeros(2)
    expected = eval(f"t.{call}", {"t": torch, "x": torch.empty(4), "y": torch.zeros(2)}).shape  # noqa: S307
    assert tuple(eval(f"t.{call}", {"t": tg, "x": x, "y": y}).shape) == tuple(expected)  # noqa: S307
    assert tuple(x.shape) == tuple(expected)


LISTS = [
    ("add", "[x], [x, y]"), ("add_", "[x, y], [x]"), ("mul", "[x, y], [2.0]"), ("exp", "[1]"), ("exp", "x"),
    ("pow", "2, [x, y]"), ("addcmul", "[x], [x], [x], [2.0, 3.0]"), ("copy_", "[x], [x, x]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), LISTS)
def test_lists_of_other_lengths_are_refused(name: str, arguments: str, tg: Any) -> None:
    mine, theirs = foreach.functions()[f"_foreach_{name}"], getattr(torch, f"_foreach_{name}")
    program = f"x, y = t.ones(2), t.ones(3)\n(mine if t is not torch else theirs)({arguments})"
    assert_same(*evaluate(program, tg, mine=mine, theirs=theirs, torch=torch))


def test_nothing_is_written_where_lists_have_other_lengths(tg: Any) -> None:
    x = [tg.zeros(2), tg.zeros(2)]
    with pytest.raises(RuntimeError, match="same number of elements"):
        foreach.functions()["_foreach_add_"](x, [tg.ones(2)])
    assert x[0].tolist() == [0.0, 0.0]


LIMITS = [
    "t.tensor(0.2), 0.5",
    "0.2, t.tensor(0.5)",
    "t.tensor(1), 0.5",
    "t.tensor([0.2]), 0.5",
    "min=t.tensor(0.2), max=1",
]


@pytest.mark.parametrize("limits", LIMITS)
def test_a_tensor_without_dimensions_and_a_number_limit_together(limits: str, tg: Any) -> None:
    program = f"""
    x = t.linspace(-1, 1, 6, requires_grad=True)
    y = t.clamp(x, {limits})
    y.sum().backward()
    (y, x.grad, (x * 2).detach().clamp_({limits}))
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "std", "logsumexp", "softmax"])
def test_masks_of_numbers_choose_what_is_not_zero(name: str, tg: Any) -> None:
    program = f"""
    x = t.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
    made = getattr(t.masked, "{name}")(x, 1, mask=t.tensor([2, 0, 1]))
    made if "{name}" != "softmax" else made[:, ::2]
    """
    assert_same(*evaluate(program, tg))
