"""What PyTorch's operator database leaves open on pointwise operations: large arrays, refusals, numbers, in place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    InplaceError,
    ShapeError,
    TelegradError,
)
from telegrad_protocol.ops import comparison, complex, elementary, extremes, pointwise
from telegrad_protocol.ops.contract import Op
from telegrad_protocol.ops.layers import activations
from tests.gpus import ALL_DEVICES

from .adapters import OURS_TO_TORCH, TORCH_TO_OURS, EngineAdapter
from .harness import Comparison
from .samples import SAMPLES

LARGE = 40_000
FAMILIES = (pointwise, extremes, elementary, comparison, activations, complex)


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture
def seed(seed: int) -> int:
    """The printed seed, which PyTorch draws from too."""
    torch.manual_seed(seed)
    return seed


def _contracts() -> Iterator[Op]:
    seen = set()
    for family in FAMILIES:
        for op in vars(family).values():
            if isinstance(op, Op) and not op.public.startswith("_") and op.public not in seen and op.promotion:
                seen.add(op.public)
                yield op


def _torch_function(name: str) -> Callable[..., Any]:
    if name in SAMPLES:
        return SAMPLES[name].reference
    return getattr(torch, name, None) or getattr(torch.nn.functional, name)  # type: ignore[no-any-return]


def _tensor_count(op: Op) -> int:
    return sum(p.kind.name.startswith("tensor") and p.required for p in op.params)


COPIES_WHAT_PYTORCH_RETURNS = {"conj_physical"}
UNARY = [op.public for op in _contracts() if _tensor_count(op) == 1 and op.public not in ("threshold", "clamp")]
BINARY = [
    op.public
    for op in _contracts()
    if _tensor_count(op) == 2 and op.public not in ("isclose", "pow", "complex", "polar")
]
INTEGER_ONLY = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift"}
STEEP = {"tan", "lgamma", "digamma", "atanh"}
"""Near their poles the rounding of the argument decides; they are tested away from them."""


def _large(name: str) -> torch.Tensor:
    if name in INTEGER_ONLY:
        return torch.randint(0, 60, (LARGE,))
    values = torch.rand(LARGE) * 0.9 + 0.05 if name in STEEP else torch.randn(LARGE) * 3
    if name == "gelu":
        values[:3] = torch.tensor([float("nan"), 0.0, -30.0])  # PyTorch's is NaN at infinity, in single precision alone
    elif name not in STEEP:
        values[:5] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])
    return values


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_large_arrays_give_what_pytorch_gives(name: str, layout: str, adapter: EngineAdapter, seed: int) -> None:
    values = _large(name)
    source = values if layout == "contiguous" else values.reshape(-1, 2)[:, 0]
    comparison = Comparison(adapter, check_strides=name not in COPIES_WHAT_PYTORCH_RETURNS)
    comparison.run(_torch_function(name), adapter.function(name), [source], {}, gradients=False)


@pytest.mark.parametrize("name", BINARY)
def test_large_pairs_give_what_pytorch_gives(name: str, adapter: EngineAdapter, seed: int) -> None:
    first, second = _large(name), _large(name).flip(0) + (1 if name in INTEGER_ONLY else 0)
    Comparison(adapter).run(_torch_function(name), adapter.function(name), [first, second], {}, gradients=False)


SMOOTH = ["relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "softplus", "hardswish", "mish", "erf"]


@pytest.mark.parametrize("name", SMOOTH)
def test_large_gradients_give_what_pytorch_gives(name: str, adapter: EngineAdapter, seed: int) -> None:
    source = (torch.randn(LARGE) * 3).requires_grad_()
    Comparison(adapter).run(_torch_function(name), adapter.function(name), [source], {}, second=False)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex128]
)
@pytest.mark.parametrize("shape", [(), (5,), (200, 200)])
def test_where_takes_tensors_and_numbers(
    dtype: torch.dtype, shape: tuple[int, ...], adapter: EngineAdapter, seed: int
) -> None:
    condition = torch.rand(shape) > 0.5
    first, second = (torch.randint(0, 2, shape).to(dtype) for _ in range(2))
    comparison = Comparison(adapter)
    for pair in [(first, second), (first, 0), (1, second), (first, torch.tensor(1).to(dtype)), (first, 2.5)]:
        comparison.run(torch.where, adapter.function("where"), [condition, *pair], {}, gradients=False)
        comparison.run(
            torch.where,
            adapter.function("where"),
            [condition[..., :1] if shape else condition, *pair],
            {},
            gradients=False,
        )


def test_where_sends_gradients_to_the_chosen_side(adapter: EngineAdapter, seed: int) -> None:
    condition = torch.rand(4, 5) > 0.5
    first, second = torch.randn(4, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    Comparison(adapter).run(torch.where, adapter.function("where"), [condition, first, second], {})


def test_where_refuses_a_condition_that_is_not_bool(adapter: EngineAdapter) -> None:
    with pytest.raises(DTypeError, match=r"where: the condition must be a bool tensor, not int64\[3\]"):
        adapter.function("where")(adapter.tensor(torch.arange(3)), 1, 2)


@pytest.mark.parametrize("mask_shape", [(20, 40), (40,), (20, 1)])
def test_masked_fill_broadcasts_the_mask(mask_shape: tuple[int, ...], adapter: EngineAdapter, seed: int) -> None:
    source, mask = torch.randn(20, 40, requires_grad=True), torch.rand(mask_shape) > 0.5
    for value in (-float("inf"), torch.tensor(3.0, requires_grad=True)):
        Comparison(adapter).run(torch.masked_fill, adapter.function("masked_fill"), [source, mask, value], {})


@pytest.mark.parametrize(("number", "message"), [(300, "does not fit into uint8"), (1j, "complex number")])
def test_masked_fill_refuses_numbers_that_do_not_fit(number: Any, message: str, adapter: EngineAdapter) -> None:
    source = adapter.tensor(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(DTypeError, match=message):
        adapter.function("masked_fill")(source, adapter.tensor(torch.ones(3, dtype=torch.bool)), number)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", [op.public for op in _contracts() if op.public not in ("where", "threshold")])
def test_takes_and_gives_the_types_that_pytorch_does(name: str, adapter: EngineAdapter) -> None:
    op = next(o for o in _contracts() if o.public == name)
    theirs, ours = _torch_function(name), adapter.function(name)
    different = []
    for types in itertools.product(TORCH_TO_OURS, repeat=min(_tensor_count(op), 2)):
        sources = [torch.ones(3).to(t) for t in types]
        sources += [sources[-1]] * (_tensor_count(op) - len(sources) + (name == "clamp"))
        expected, found = _result_type(theirs, sources), _our_type(ours, [adapter.tensor(s) for s in sources])
        if expected is not found and not _is_excused(name, types) and not _goes_further(expected, found, types):
            different.append(f"{types}: PyTorch gives {expected}, telegrad {found}")
    assert not different, "\n".join(different)


def _goes_further(expected: Any, found: Any, types: tuple[torch.dtype, ...]) -> bool:
    """Whether telegrad computes what PyTorch has no kernel for: wide unsigned types, and complex numbers of halves."""
    rare = {torch.uint16, torch.uint32, torch.uint64, torch.complex32}
    return expected is None and found is not None and bool(rare & {*types, OURS_TO_TORCH[found]})


def _result_type(function: Callable[..., Any], args: list[Any]) -> Any:
    try:
        return TORCH_TO_OURS.get(function(*args).dtype)
    except (RuntimeError, TypeError):
        return None


def _our_type(function: Callable[..., Any], args: list[Any]) -> Any:
    try:
        return function(*args).dtype
    except TelegradError:
        return None


def _is_excused(name: str, types: tuple[torch.dtype, ...]) -> bool:
    """PyTorch refuses the default -1 for unsigned numbers there, and clamps them elsewhere; complex32 is not here."""
    return (name == "hardtanh" and types[0] is torch.uint8) or (name == "complex" and torch.float16 in types)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "bitwise_and", "eq"])
def test_numbers_beyond_an_integer_type_wrap_around(name: str, adapter: EngineAdapter) -> None:
    source = torch.tensor([0, 44, 255], dtype=torch.uint8)
    for number in (300, -1, 255):
        Comparison(adapter).run(_torch_function(name), adapter.function(name), [source, number], {}, gradients=False)


def test_a_number_may_be_the_first_operand(adapter: EngineAdapter, seed: int) -> None:
    exponent = torch.rand(4, requires_grad=True)
    comparison = Comparison(adapter)
    comparison.run(lambda x: 2.5**x, lambda x: 2.5**x, [exponent], {})
    comparison.run(lambda x: 1 - x, lambda x: 1 - x, [exponent], {})
    comparison.run(lambda x: 1 / x, lambda x: 1 / x, [exponent], {})
    comparison.run(lambda x: 2**x, lambda x: 2**x, [torch.arange(4)], {}, gradients=False)


def test_integers_have_the_negative_powers_that_are_integers(adapter: EngineAdapter) -> None:
    base, exponent = torch.tensor([1, -1, -1, 2, 3, -2, 1]), torch.tensor([-3, -3, -2, -1, 2, 3, 0])
    Comparison(adapter).run(torch.pow, adapter.function("pow"), [base, exponent], {})
    with pytest.raises(DTypeError, match=r"pow: integers have no negative integer powers: int64\[7\] \*\* -1"):
        adapter.function("pow")(adapter.tensor(base), -1)


@pytest.mark.parametrize("number", [-1.5, 2.0])
def test_real_bases_of_complex_powers_have_gradients(number: float, adapter: EngineAdapter) -> None:
    base = torch.tensor([-1.5, 2.0, -0.25], dtype=torch.float64, requires_grad=True)
    exponent = torch.tensor([0.3 + 0.2j, 1 - 2j, 0.5j], requires_grad=True, dtype=torch.complex128)
    Comparison(adapter).run(torch.pow, adapter.function("pow"), [base, exponent], {})
    Comparison(adapter).run(torch.pow, adapter.function("pow"), [number, exponent], {}, second=False)


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 2, 3, -1, 1.7, -2.5])
def test_powers_of_large_arrays(exponent: float, adapter: EngineAdapter, seed: int) -> None:
    source = torch.rand(LARGE).add_(0.1).requires_grad_()
    Comparison(adapter).run(torch.pow, adapter.function("pow"), [source, exponent], {}, second=False)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integer_division_by_zero_is_refused(name: str, adapter: EngineAdapter) -> None:
    source = adapter.tensor(torch.arange(3))
    with pytest.raises(DTypeError, match="by zero"):
        adapter.function(name)(source, 0)
    with pytest.raises(DTypeError, match="by zero"):
        adapter.function(name)(source, adapter.tensor(torch.tensor([1, 0, 1])))


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_rounded_division_of_all_signs(mode: str | None, adapter: EngineAdapter) -> None:
    numbers = torch.tensor([-7, -6, -1, 0, 1, 6, 7])
    first, second = numbers.repeat_interleave(6), torch.tensor([-3, -2, -1, 1, 2, 3]).repeat(7)
    for dtype in (torch.int64, torch.int8, torch.float32, torch.float16):
        Comparison(adapter).run(
            torch.div,
            adapter.function("div"),
            [first.to(dtype), second.to(dtype)],
            {"rounding_mode": mode},
            gradients=False,
        )


def test_refusals_say_what_is_wrong(adapter: EngineAdapter) -> None:
    F = adapter.functional
    integers, bools, floats = (
        adapter.tensor(t) for t in (torch.arange(3), torch.ones(3, dtype=torch.bool), torch.rand(3))
    )
    with pytest.raises(DTypeError, match="sub: bool operands are not subtracted"):
        F.sub(bools, 1)
    with pytest.raises(DTypeError, match="add: alpha must be an integer where the operands are"):
        F.add(integers, 1, alpha=2.5)
    with pytest.raises(
        DTypeError, match=r"neg: Negation, the `-` operator, on a bool tensor is not supported.*bool\[3\]"
    ):
        F.neg(bools)
    with pytest.raises(DTypeError, match="add_: result type float32 can't be cast to int64"):
        F.add_(integers, 1.5)
    with pytest.raises(ShapeError, match=r"add: shapes \[3\] and \[2\] do not broadcast: sizes 3 and 2 at dimension 0"):
        F.add(floats, adapter.tensor(torch.rand(2)))
    with pytest.raises(ArgumentError, match="div: rounding_mode must be"):
        F.div(floats, floats, rounding_mode="up")
    with pytest.raises(ArgumentError, match="gelu: approximate argument must be"):
        F.gelu(floats, approximate="fast")
    with pytest.raises(ArgumentTypeError, match="at least one operand must be a tensor"):
        F.mul(1, 2)
    with pytest.raises(DTypeError, match="the real result does not go into"):
        F.abs_(adapter.tensor(torch.ones(3, dtype=torch.complex64)))


@pytest.mark.parametrize("name", ["sin_", "mul_", "exp_", "relu_", "clamp_", "pow_", "sigmoid_", "silu_"])
def test_gradients_pass_through_in_place_forms(name: str, adapter: EngineAdapter, seed: int) -> None:
    """The value that was overwritten is what the formula needs: it is kept."""
    from server.engine.backward import grad

    extra = {"mul_": (3.0,), "clamp_": (-0.5, 0.5), "pow_": (3,)}.get(name, ())
    source = torch.randn(7, requires_grad=True)
    theirs = source * 2
    torch.nn.functional.silu(theirs, inplace=True) if name == "silu_" else getattr(theirs, name)(*extra)
    leaf = adapter.tensor(source, True)
    ours = leaf * 2
    getattr(adapter.functional, name)(ours, *extra)
    expected = torch.autograd.grad(theirs.sum(), source)[0]
    Comparison(adapter).compare(grad([ours.sum()], [None], [leaf])[0], expected)


def test_writing_into_an_expanded_tensor_is_refused(adapter: EngineAdapter) -> None:
    expanded = adapter.functional.expand(adapter.tensor(torch.zeros(1)), (3,))
    with pytest.raises(InplaceError, match="share memory"):
        adapter.functional.add_(expanded, 1)


def test_out_may_be_an_operand(adapter: EngineAdapter, seed: int) -> None:
    from server.engine.dispatcher import call
    from server.engine.operators import OPERATORS

    condition, first, second = torch.rand(LARGE) > 0.5, torch.rand(LARGE), torch.rand(LARGE)
    expected = torch.where(condition, first, second)
    ours = [adapter.tensor(t) for t in (condition, first, second)]
    Comparison(adapter).compare(call(OPERATORS["where.out"], tuple(ours), {"out": ours[1]}), expected)
    low, high = adapter.tensor(first), adapter.tensor(second)
    Comparison(adapter).compare(
        call(OPERATORS["clamp.out"], (ours[2], low, high), {"out": high}), torch.clamp(second, first, second)
    )


def test_real_and_imaginary_parts_are_views(adapter: EngineAdapter) -> None:
    source = adapter.tensor(torch.tensor([1 + 2j, 3 + 4j]))
    adapter.functional.zero_(adapter.functional.imag(source))
    assert adapter.numpy(source).tolist() == [1, 3]
    assert adapter.functional.real(source).storage is source.storage


def test_the_gradient_of_hardsigmoid_is_a_sixth(adapter: EngineAdapter) -> None:
    from server.engine.backward import grad

    leaf = adapter.tensor(torch.tensor([-4.0, 0.5, 4.0], dtype=torch.float64), True)
    found = grad([adapter.functional.hardsigmoid(leaf).sum()], [None], [leaf])[0]
    assert adapter.numpy(found).tolist() == [0, 1 / 6, 0]


def test_the_error_function_is_exact_to_single_precision(adapter: EngineAdapter) -> None:
    source = torch.cat([torch.linspace(-6, 6, 200_001), torch.tensor([0.0, 1e-30, float("inf"), -float("inf")])])
    found = adapter.numpy(adapter.functional.erf(adapter.tensor(source))).astype(np.float64)
    expected = torch.erf(source.double()).numpy()
    assert np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1e-38)) < 4e-7
    assert found[[0, -5, -2, -1]].tolist() == [-1, 1, 1, -1]
    assert np.isnan(adapter.numpy(adapter.functional.erf(adapter.tensor(torch.full((1000,), torch.nan))))).all()


def test_other_names_are_the_same_operations(adapter: EngineAdapter) -> None:
    F = adapter.functional
    source = adapter.tensor(torch.tensor([-1.5, 2.5]))
    for alias, name in {"absolute": "abs", "negative": "neg", "fix": "trunc", "arctan": "atan"}.items():
        assert adapter.numpy(getattr(F, alias)(source)).tolist() == adapter.numpy(getattr(F, name)(source)).tolist()
    assert adapter.numpy(F.multiply_(source, 2)).tolist() == [-3, 5]


def test_gradients_pass_through_a_modified_imaginary_part(adapter: EngineAdapter) -> None:
    from server.engine.backward import grad

    F = adapter.functional
    source = torch.tensor([1 + 2j, 3 + 4j], requires_grad=True)
    theirs = source * 1
    theirs.imag.mul_(3)
    expected = torch.autograd.grad((theirs * theirs.conj()).real.sum(), source)[0]
    leaf = adapter.tensor(source, True)
    ours = leaf * 1
    F.mul_(F.imag(ours), 3)
    Comparison(adapter).compare(grad([F.real(ours * F.conj(ours)).sum()], [None], [leaf])[0], expected)


def test_gradients_pass_through_modified_complex_views_of_real_numbers(adapter: EngineAdapter) -> None:
    from server.engine.backward import grad

    F = adapter.functional
    source, factor = torch.randn(8, requires_grad=True), torch.tensor([2j, 1 - 1j])
    theirs = source * 1
    pairs = torch.view_as_complex(theirs[2:].view(3, 2))
    pairs[1:].mul_(factor)
    expected = torch.autograd.grad((theirs.square().sum() + torch.view_as_real(pairs * pairs).sum()), source)[0]
    leaf = adapter.tensor(source, True)
    ours = leaf * 1
    mine = F.view_as_complex(F.view(F.slice(ours, 0, 2, None, 1), (3, 2)))
    F.mul_(F.slice(mine, 0, 1, None, 1), adapter.tensor(factor))
    loss = F.square(ours).sum() + F.view_as_real(mine * mine).sum()
    Comparison(adapter).compare(grad([loss], [None], [leaf])[0], expected)


@pytest.mark.parametrize("device", ALL_DEVICES)
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_of_subnormal_divisors_are_exact(name: str, device: str, seed: int) -> None:
    """Against float64: PyTorch's vectorised functions give NaN where the quotient overflows."""
    adapter = EngineAdapter(device)
    dividends = torch.randn(300) * 4
    divisors = torch.full((300,), 1e-40) * torch.randint(1, 9, (300,)) * torch.randint(0, 2, (300,)).mul(2).sub(1)
    assert (divisors != 0).all()
    found = adapter.function(name)(adapter.tensor(dividends, False), adapter.tensor(divisors, False))
    expected = getattr(torch, name)(dividends.double(), divisors.double()).float()
    np.testing.assert_array_equal(adapter.numpy(found), expected.numpy())
