"""Optimizers step parameters of classes that answer operators: each operator is asked for, as PyTorch asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad._ops.functions import function
from telegrad._ops.overriding import disabled_torch_function
from telegrad.errors import ArgumentError, ShapeError
from telegrad.nn import _future_settings as future_settings
from telegrad.utils import _pytree as pytree
from telegrad.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing


def _pair_class(tg: Any) -> Any:
    """Return a class of two tensors, which runs every operator on both: what is no operation on them comes twice."""

    class Pair(tg.Tensor):  # type: ignore[misc, name-defined]
        __torch_function__ = classmethod(disabled_torch_function)

        @staticmethod
        def __new__(cls: Any, a: Any, b: Any) -> Any:
            made = tg.Tensor._make_wrapper_subclass(cls, a.size(), dtype=a.dtype, device=a.device)
            made.both = a, b
            return made

        def __init__(self, a: Any, b: Any) -> None:
            pass

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            runs = []
            for place in (0, 1):
                plain = pytree.tree_map_only(Pair, lambda t, at=place: t.both[at], (args, kwargs or {}))
                runs.append(func(*plain[0], **plain[1]))
            parts, spec = pytree.tree_flatten(runs[0])
            joined = [Pair(a, b) if isinstance(a, tg.Tensor) else a for a, b in zip(parts, pytree.tree_leaves(runs[1]))]
            return return_and_correct_aliasing(func, args, kwargs or {}, pytree.tree_unflatten(joined, spec))

    return Pair


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {}),
        ("Adam", {"weight_decay": 0.1, "amsgrad": True, "maximize": True}),
        ("AdamW", {}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        ("Adadelta", {}),
        ("NAdam", {}),
    ],
)
def test_parameters_of_a_class_are_stepped_as_their_parts_are(
    tg: Any, rng: np.random.Generator, name: str, options: dict[str, Any]
) -> None:
    parts = [tg.tensor(rng.standard_normal(3)) for _ in range(2)]
    wrapped = tg.nn.Parameter(_pair_class(tg)(*[part.clone() for part in parts]))
    plain = [tg.nn.Parameter(part.clone()) for part in parts]
    for parameters in ([wrapped], plain):
        optimizer = getattr(tg.optim, name)(parameters, lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            sum((p * p * 3).sum() for p in parameters).backward()
            optimizer.step()
    for own, expected in zip(wrapped.both, plain, strict=True):
        assert np.allclose(own.numpy(), expected.detach().numpy(), atol=1e-9)


def test_a_mode_sees_the_operators_of_a_step(tg: Any, rng: np.random.Generator) -> None:
    class Names(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    parameter = tg.nn.Parameter(tg.tensor(rng.standard_normal(3)))
    parameter.grad = tg.ones_like(parameter)
    expected = {
        "Adam": ["lerp_.Scalar", "mul_.Tensor", "addcmul_.default", "sqrt.default", "div.Tensor", "add_.Tensor",
                 "addcdiv_.default"],
        "SGD": ["mul_.Tensor", "add_.Tensor", "add_.Tensor"],
    }  # fmt: skip
    for name, options in (("Adam", {}), ("SGD", {"momentum": 0.9})):
        optimizer = getattr(tg.optim, name)([parameter], lr=0.1, **options)
        optimizer.step()
        seen: list[str] = []
        with Names():
            optimizer.step()
        assert [one for one in seen if "_local_scalar" not in one][-len(expected[name]) :] == [
            f"aten.{one}" for one in expected[name]
        ]


def test_lists_of_one_tensor_stay_lists(tg: Any, rng: np.random.Generator) -> None:
    pair = _pair_class(tg)(*[tg.tensor(rng.random(3)) for _ in range(2)])
    assert isinstance(function("_foreach_sqrt")([pair]), tuple) and len(function("_foreach_add")([pair], 1.0)) == 1
    with pytest.raises((ArgumentError, ShapeError), match="_foreach_mul"):
        function("_foreach_mul_")([pair, pair], [pair])


def test_conversions_and_state_dictionaries_swap_parameters_where_a_program_asks_for_it(
    tg: Any, rng: np.random.Generator
) -> None:
    layer = tg.nn.Linear(2, 2)
    parts = [tg.tensor(rng.random((2, 2)), dtype=tg.float32) for _ in range(2)]
    layer.weight = tg.nn.Parameter(_pair_class(tg)(*parts))
    layer.bias.grad = tg.ones(2)
    held, grad = (layer.weight, layer.bias), layer.bias.grad
    future_settings.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
        assert (layer.weight, layer.bias) == held and layer.bias.grad is grad and grad.dtype == tg.float64
        assert [part.dtype for part in layer.weight.both] == [tg.float64] * 2
        given = {"weight": tg.nn.Parameter(tg.ones(2, 2)), "bias": tg.zeros(2)}
        layer.load_state_dict(given, assign=True)
        assert (layer.weight, layer.bias) == held and type(layer.weight) is tg.nn.Parameter
        assert layer.weight.tolist() == [[1.0, 1.0]] * 2 and layer.bias.requires_grad
        view = layer.bias[:1]
        with pytest.raises(RuntimeError, match=r"bias.*views"):
            layer.load_state_dict(given)
        del view
    finally:
        future_settings.set_swap_module_params_on_conversion(False)
