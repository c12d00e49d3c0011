"""Attributes of tensors, and methods that only tell of them, by classes and modes that override operations."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
overrides = import_module(t.__name__ + ".overrides")
log = []
class Noting(t.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append((func.__name__, [kind.__name__ for kind in types], len(args), dict(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs)
class Mode(overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        log.append((func.__name__, len(args)))
        return func(*args, **(kwargs or {}))
class Silent(t.Tensor):
    pass
plain = t.full((2, 3), 1.5)
x = plain.as_subclass(Noting)
log.clear()
"""
ATTRIBUTES = [
    "shape", "dtype", "device", "ndim", "grad", "requires_grad", "is_leaf", "grad_fn", "data", "T", "mT", "layout",
    "itemsize", "nbytes", "is_cuda", "is_sparse", "is_meta", "output_nr", "retains_grad", "real", "_version",
]  # fmt: skip
METHODS = [
    "size()", "size(0)", "dim()", "numel()", "stride()", "stride(1)", "is_contiguous()", "storage_offset()",
    "element_size()", "is_floating_point()", "is_complex()", "is_conj()", "get_device()", "is_signed()",
    "is_same_size(plain)", "__len__()", "is_shared()", "resolve_conj()", "is_set_to(plain)", "is_inference()",
]  # fmt: skip


@pytest.mark.parametrize("call", [*ATTRIBUTES, *METHODS])
def test_a_class_is_asked(tg: Any, call: str) -> None:
    ours, theirs = evaluate(f"{PROLOGUE}\nanswer = x.{call}\n(log, isinstance(answer, Noting))", tg)
    assert theirs[0]
    assert_same(ours, theirs)


@pytest.mark.parametrize("call", [*ATTRIBUTES, *METHODS])
def test_a_mode_is_asked(tg: Any, call: str) -> None:
    ours, theirs = evaluate(f"{PROLOGUE}\nwith Mode():\n    plain.{call}\nlog", tg)
    assert theirs
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", ["shape", "dtype", "grad", "T", "requires_grad", "is_cuda"])
def test_what_is_asked_for_is_the_accessor(tg: Any, name: str) -> None:
    program = f"""{PROLOGUE}
seen = []
class Comparing(t.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append((func == t.Tensor.{name}.__get__, func in {{t.Tensor.{name}.__get__}}))
        return 7
(plain.as_subclass(Comparing).{name}, seen, overrides.is_tensor_method_or_property(t.Tensor.{name}.__get__))"""
    ours, theirs = evaluate(program, tg)
    assert theirs == (7, [(True, True)], True)
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "change", ["x.requires_grad = True", "x.grad = plain", "x.grad = None", "del x.grad", "x.data = plain + 1"]
)
def test_assignments_are_asked_for(tg: Any, change: str) -> None:
    ours, theirs = evaluate(f"{PROLOGUE}\n{change}\nfirst = log[0]\n(first, x.requires_grad, plain.requires_grad)", tg)
    assert theirs[0][0] in ("__set__", "__delete__")
    assert_same(ours, theirs)


def test_results_of_attributes_are_of_the_class_but_gradients(tg: Any) -> None:
    program = f"""{PROLOGUE}
s = t.full((2, 2), 2.0).as_subclass(Silent).requires_grad_()
(s * s).sum().backward()
kinds = [type(value).__name__ for value in (s.T, s.data, s.grad, s.mT, s.detach())]
(kinds, s.shape == (2, 2), type(s.shape).__name__)"""
    ours, theirs = evaluate(program, tg)
    assert_same(ours, theirs)
    nowrap = "len({t.Tensor.grad.__get__} & import_module(t.__name__ + '.overrides').get_default_nowrap_functions())"
    assert evaluate(f"from importlib import import_module\n{nowrap}", tg) == (1, 1)


def test_disabled_classes_are_not_asked(tg: Any) -> None:
    program = f"""{PROLOGUE}
with getattr(t, '_C', overrides).DisableTorchFunctionSubclass():
    x.shape, x.dim(), x.T
log"""
    ours, theirs = evaluate(program, tg)
    assert theirs == []
    assert_same(ours, theirs)


def test_copies_of_what_contains_itself(tg: Any) -> None:
    """The memo of a copy may hold what holds the memo."""
    program = f"""{PROLOGUE}
import copy
holder = {{"x": x}}
holder["self"] = [holder]
copied = copy.deepcopy(holder)
(copied["self"][0] is copied, type(copied["x"]).__name__, log[0][0])"""
    assert evaluate(program, tg)[0] == (True, "Noting", "__deepcopy__")
