"""Subclasses that answer operators below autograd: wrappers with elements of their own, and fake tensors."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from typing import Any

import numpy as np
import pytest

from telegrad._dispatch.fake_tensors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    is_fake,
)
from telegrad._ops.overriding import disabled_torch_function
from telegrad.errors import ArgumentTypeError, NotSupportedError, ShapeError
from telegrad.utils import _pytree as pytree
from telegrad.utils._python_dispatch import (
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)

from .twins import assert_same, evaluate


@pytest.fixture
def wrapper(tg: Any) -> Any:
    """A class that keeps its elements in another tensor and notes the operators that it answers."""

    class Wrapper(tg.Tensor):  # type: ignore[misc, name-defined]
        __torch_function__ = classmethod(disabled_torch_function)
        seen: list[str] = []

        @staticmethod
        def __new__(cls: Any, elem: Any, **options: Any) -> Any:
            made = tg.Tensor._make_wrapper_subclass(
                cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, device=elem.device, **options
            )
            made.elem = elem.detach()
            return made

        def __init__(self, elem: Any, **options: Any) -> None:
            pass

        def __repr__(self) -> str:
            return f"Wrapper({self.elem.tolist()})"

        def __tensor_flatten__(self) -> Any:
            return ["elem"], None

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Wrapper(inner["elem"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(str(func))
            plain = pytree.tree_map_only(Wrapper, lambda t: t.elem, (args, kwargs or {}))
            result = pytree.tree_map_only(tg.Tensor, Wrapper, func(*plain[0], **plain[1]))
            return return_and_correct_aliasing(func, args, kwargs, result)

    return Wrapper


def test_gradients_of_wrappers_are_wrappers(tg: Any, wrapper: Any, rng: np.random.Generator) -> None:
    values, weights = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    own, weight = wrapper(tg.tensor(values), requires_grad=True), tg.tensor(weights, requires_grad=True)
    x, w = tg.tensor(values, requires_grad=True), tg.tensor(weights, requires_grad=True)

    def loss(a: Any, b: Any) -> Any:
        return (tg.nn.functional.linear(a.sin() * 2 + a, b).relu().softmax(1)[:, 0] ** 2).mean()

    total = loss(own, weight)
    assert type(total) is wrapper and total.requires_grad and not total.is_leaf and total.grad_fn.name()
    hooked: list[Any] = []
    own.register_hook(hooked.append)
    total.backward()
    loss(x, w).backward()
    np.testing.assert_allclose(own.grad.elem.numpy(), x.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(weight.grad.elem.numpy(), w.grad.numpy(), rtol=1e-9)
    assert type(own.grad) is wrapper and type(hooked[0]) is wrapper
    loss(own, weight.detach()).backward()
    np.testing.assert_allclose(own.grad.elem.numpy(), 2 * x.grad.numpy(), rtol=1e-9)
    (grad,) = tg.autograd.grad(loss(own, weight.detach()), own)
    np.testing.assert_allclose(grad.elem.numpy(), x.grad.numpy(), rtol=1e-9)
    expected = {"aten.mul.Tensor", "aten.t.default", "aten.mm.default", "aten.threshold_backward.default"}
    assert expected <= set(wrapper.seen)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "name", ["max", "sort", "topk", "median", "cummax", "aminmax", "linalg.qr", "linalg.svd", "linalg.lu_factor"]
)
def test_results_of_wrappers_have_their_names(tg: Any, wrapper: Any, name: str, requires_grad: bool) -> None:
    import torch

    function, theirs = operator.attrgetter(name)(tg), operator.attrgetter(name)(torch)
    rest = {"max": (0,), "topk": (1,), "median": (0,), "cummax": (0,)}.get(name, ())
    elements = [[3.0, 1.0], [2.0, 4.0]]
    result = function(wrapper(tg.tensor(elements), requires_grad=requires_grad), *rest)
    expected = theirs(torch.tensor(elements), *rest)
    assert type(result).__name__ == type(expected).__name__ != "tuple"
    for field in (field for field in dir(expected) if isinstance(getattr(expected, field), torch.Tensor)):
        part = getattr(result, field)
        assert type(part) is wrapper, field
        np.testing.assert_allclose(part.elem.numpy(), getattr(expected, field).numpy(), rtol=1e-5, atol=1e-6)


def test_second_derivatives_of_wrappers(tg: Any, wrapper: Any) -> None:
    own = wrapper(tg.tensor([1.0, 2.0]), requires_grad=True)
    (first,) = tg.autograd.grad((own**3).sum(), own, create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), own)
    assert first.elem.tolist() == [3.0, 12.0] and second.elem.tolist() == [6.0, 12.0]


def test_gradients_flow_on_from_wrappers_to_what_the_server_computed(tg: Any, wrapper: Any) -> None:
    class Unwrapped(wrapper):  # type: ignore[misc]
        """A weight that decays: what is computed with it is plain."""

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            plain = pytree.tree_map_only(Unwrapped, lambda t: t.elem, (args, kwargs or {}))
            result = func(*plain[0], **plain[1])
            keeps = func in (tg.ops.aten.detach.default, tg.ops.aten.clone.default)
            return Unwrapped(result) if keeps else result

    layer, x = tg.nn.Linear(4, 3), tg.ones(2, 4)
    weight = tg.nn.Parameter(Unwrapped(tg.arange(6.0).reshape(2, 3)))
    assert isinstance(weight, tg.nn.Parameter) and isinstance(weight, Unwrapped) and weight.requires_grad
    head = tg.nn.Linear(3, 2, bias=False)
    head.weight = weight
    assert [name for name, _ in head.named_parameters()] == ["weight"]
    (head(layer(x)).tanh() * 2).sum().backward()
    plain = tg.arange(6.0).reshape(2, 3).requires_grad_()
    before = layer.weight.grad.numpy()
    layer.zero_grad()
    (tg.nn.functional.linear(layer(x), plain).tanh() * 2).sum().backward()
    np.testing.assert_allclose(before, layer.weight.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(weight.grad.numpy(), plain.grad.numpy(), rtol=1e-6)


def test_what_operators_write_into_and_view_is_returned_itself(tg: Any, wrapper: Any) -> None:
    own = wrapper(tg.zeros(2, 3))
    assert own.add_(1) is own and own.elem.tolist() == [[1.0] * 3] * 2
    view = own[0]
    assert view._is_view() and view.shape == (3,) and view.fill_(5) is view and own.elem[0].tolist() == [5.0] * 3
    assert own.to(tg.float64).dtype is tg.float64 and own.double().elem.dtype is tg.float64
    assert tg.cat([own, own]).elem.shape == (4, 3)


def test_wrappers_say_what_they_consist_of(tg: Any, wrapper: Any) -> None:
    own = wrapper(tg.ones(2))
    assert is_traceable_wrapper_subclass(own) and not is_traceable_wrapper_subclass(tg.ones(2))
    doubled = transform_subclass(own, lambda name, inner: inner * 2)
    assert type(doubled) is wrapper and doubled.elem.tolist() == [2.0, 2.0]
    assert repr(own) == "Wrapper([1.0, 1.0])" and own.device == tg.ones(2).device
    with pytest.raises(NotSupportedError, match="elements are the program's own"):
        own.tolist()
    with pytest.raises(ArgumentTypeError, match="must define __torch_dispatch__"):
        tg.Tensor._make_wrapper_subclass(tg.Tensor, (2,))


def test_a_class_that_shares_memory_answers_operators(tg: Any) -> None:
    from telegrad.utils._mode_utils import no_dispatch

    seen: list[str] = []

    class Logging(tg.Tensor):  # type: ignore[misc, name-defined]
        __torch_function__ = classmethod(disabled_torch_function)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            with no_dispatch():
                return func(*args, **(kwargs or {}))

    x = tg.Tensor._make_subclass(Logging, tg.tensor([1.0, 2.0]), True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0] and seen[:2] == ["aten.mul.Tensor"] * 2


def test_wrappers_go_through_files_and_pickles(tg: Any, wrapper: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(globals(), "Wrapper", wrapper)
    wrapper.__module__, wrapper.__qualname__ = __name__, "Wrapper"
    given, file = wrapper(tg.arange(6.0).reshape(2, 3).t(), requires_grad=True), io.BytesIO()
    tg.save({"w": given}, file)
    for read in (
        tg.load(io.BytesIO(file.getvalue()), weights_only=False)["w"], pickle.loads(pickle.dumps(given))
    ):  # fmt: skip
        assert type(read) is wrapper and read.requires_grad and read.is_leaf
        assert (read.shape, read.stride(), read.elem.tolist()) == ((3, 2), (1, 3), given.elem.tolist())
    with pytest.raises(pickle.UnpicklingError, match="Wrapper; with weights_only=True"):
        tg.load(io.BytesIO(file.getvalue()))


def test_wrappers_are_normalized_over_batches(tg: Any, wrapper: Any, rng: np.random.Generator) -> None:
    given = tg.tensor(rng.standard_normal((5, 3)).astype(np.float32))
    ours, plain = tg.nn.BatchNorm1d(3), tg.nn.BatchNorm1d(3)
    result = ours(wrapper(given))
    assert type(result) is wrapper
    tg.testing.assert_close(result.elem, plain(given).detach())
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert tg.equal(getattr(ours, name), getattr(plain, name))


def test_slots_of_a_class_are_copied_and_saved(tg: Any, monkeypatch: Any) -> None:
    class Slotted(tg.Tensor):  # type: ignore[misc, name-defined]
        __slots__ = ["scale"]

    monkeypatch.setitem(globals(), "Slotted", Slotted)
    Slotted.__module__, Slotted.__qualname__ = __name__, "Slotted"
    given, file = tg.ones(2).as_subclass(Slotted), io.BytesIO()
    given.scale, given.note = tg.full((1,), 3.0), "left"
    tg.save(given, file)
    read = tg.load(io.BytesIO(file.getvalue()), weights_only=False)
    for made in (read, pickle.loads(pickle.dumps(given)), copy.copy(given), copy.deepcopy(given)):
        assert type(made) is Slotted and (made.scale.tolist(), made.note, made.tolist()) == ([3.0], "left", [1.0, 1.0])


def test_every_class_may_refuse(tg: Any, wrapper: Any) -> None:
    class Refusing(wrapper):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    with pytest.raises(TypeError, match=r"(?s)returned NotImplemented:.*Refusing"):
        Refusing(tg.ones(2)) + 1
    assert type(wrapper(tg.ones(2)) + 1) is wrapper


def test_fake_tensors_have_shapes_on_devices_that_are_not_there(tg: Any) -> None:
    with FakeTensorMode() as mode:
        model = tg.nn.Sequential(tg.nn.Linear(4, 5, device="cuda:3"), tg.nn.ReLU())
        x = tg.randn(3, 4, device="cuda:3")
        out = model(x)
        out.sum().backward()
        tg.optim.Adam(model.parameters()).step()
    assert is_fake(out) and out.shape == (3, 5) and out.device == tg.device("cuda:3") and out.requires_grad
    assert isinstance(model[0].weight, tg.nn.Parameter) and is_fake(model[0].weight.grad)
    with pytest.raises(DataDependentOutputException):
        out.sum().item()
    with pytest.raises(DynamicOutputShapeException, match="nonzero"):
        out.nonzero()
    with pytest.raises(ShapeError):
        out @ out
    real = tg.arange(6.0, requires_grad=True).reshape(2, 3).T
    fake = mode.from_tensor(real)
    assert isinstance(fake, FakeTensor) and fake.stride() == (1, 3) and mode.from_tensor(real) is fake
    assert repr(fake + 1) == "FakeTensor(..., size=(3, 2), grad_fn=<AddBackward0>)"
    with pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"), mode:
        fake + real
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert is_fake(real @ tg.ones(2, 5, device="cpu"))
    assert not is_fake(tg.ones(2))


PLAIN = """
seen = []
class Seeing(t.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        seen.append((str(func), [kind.__name__ for kind in types]))
        return super().__torch_dispatch__(func, types, args, kwargs or {})
s = t.Tensor._make_subclass(Seeing, t.arange(3.0))
"""


@pytest.mark.parametrize("call", ["s + 1", "2 * s", "s.sum()", "t.add(s, s)", "s.view(3, 1)", "t.cat([s, s])"])
def test_a_class_may_have_tensors_answer_in_its_place(tg: Any, call: str) -> None:
    """Results are what was computed, and no tensors of the class."""
    ours, theirs = evaluate(f"{PLAIN}\nresult = {call}\n(type(result).__name__, result, seen)", tg)
    assert theirs[0] == "Tensor" and len(theirs[2]) == 1
    assert_same(ours, theirs)


def test_what_a_class_answers_with_stays_what_it_is(tg: Any) -> None:
    program = """
    class Opened(t.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            opened = [one.inner if isinstance(one, cls) else one for one in args]
            return func(*opened, **(kwargs or {}))
    result = Opened(t.arange(3.0)) * 2
    (type(result).__name__, result)
    """
    assert_same(*evaluate(program, tg))
    with pytest.raises(ArgumentTypeError, match="must define __torch_dispatch__"):
        tg.Tensor._make_wrapper_subclass(type("Silent", (tg.Tensor,), {}), (2,))


def test_a_wrapper_answers_the_operator_that_takes_it_to_the_meta_device(tg: Any, wrapper: Any) -> None:
    own = wrapper(tg.ones(2, 3))
    wrapper.seen.clear()
    for moved, dtype in ((own.to("meta"), tg.float32), (own.to("meta", tg.float64), tg.float64)):
        assert type(moved) is wrapper and moved.elem.device.type == moved.device.type == "meta"
        assert moved.dtype is dtype and moved.shape == (2, 3)
    assert wrapper.seen == ["aten._to_copy.default"] * 2
