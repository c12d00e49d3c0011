"""Random programs: the client's flags are the server's and PyTorch's after every step, and so are values at the end."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import telegrad
from telegrad import TelegradError, Tensor

STEPS = 40


class Program:
    """Two lists of tensors, ours and PyTorch's, that the same steps are applied to."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ours: list[Tensor] = []
        self.theirs: list[torch.Tensor] = []
        self.log: list[str] = []

    def run(self) -> None:
        for _ in range(3):
            self.apply("leaf")
        for _ in range(STEPS):
            name = self.random.choice(list(_STEPS))
            if not self.apply(name) and name == "backward":
                return  # a pass that fails half-way leaves gradients that are not to be relied on
            self.compare_flags()
        self.compare_all()

    def apply(self, name: str) -> bool:
        """Do a step on both sides; false if both refuse."""
        step = _STEPS[name]
        count = step.__code__.co_argcount - 2
        chosen = [self.random.randrange(len(self.ours)) for _ in range(count)] if self.ours else []
        number = self.random.randrange(1 << 30)
        self.log.append(f"{name}{tuple(chosen)} {number}")
        ours = self._try(step, telegrad, number, [self.ours[i] for i in chosen])
        theirs = self._try(step, torch, number, [self.theirs[i] for i in chosen])
        failed = isinstance(ours, Exception), isinstance(theirs, Exception)
        assert failed[0] == failed[1], f"{self.story()}\nours {ours!r}\ntheirs {theirs!r}"
        if isinstance(ours, Tensor):
            self.ours.append(ours)
            self.theirs.append(theirs)
        return not failed[0]

    @staticmethod
    def _try(step: Any, t: Any, number: int, tensors: list[Any]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = step(t, number, *tensors)
                if t is telegrad:
                    telegrad.cuda.synchronize()  # errors that only data can show
                return result
        except (TelegradError, RuntimeError, TypeError) as error:
            return error

    def compare_flags(self) -> None:
        for at, (a, b) in enumerate(zip(self.ours, self.theirs, strict=True)):
            seen = a.requires_grad, a.is_leaf, tuple(a.shape), _steps(a), a.storage_offset(), _grad(a) is not None
            wanted = b.requires_grad, b.is_leaf, tuple(b.shape), _steps(b), b.storage_offset(), _grad(b) is not None
            assert seen == wanted, f"{self.story()}\ntensor {at}: {seen} is not {wanted}"

    def compare_all(self) -> None:
        session = self.ours[0]._session
        described = session.describe(tuple(t._id for t in self.ours), tuple(t.device for t in self.ours))
        for at, (ours, theirs) in enumerate(zip(self.ours, self.theirs, strict=True)):
            meta, requires_grad = described[at]
            assert (meta, requires_grad) == (ours._meta, ours.requires_grad), (
                f"{self.story()}\nthe server's tensor {at}"
            )
            np.testing.assert_allclose(
                ours.numpy(force=True), theirs.detach().numpy(), rtol=1e-5, err_msg=f"{self.story()}\ntensor {at}"
            )
            if _grad(ours) is not None:
                np.testing.assert_allclose(
                    _grad(ours).numpy(), _grad(theirs).numpy(), rtol=1e-5, err_msg=f"{self.story()}\ngradient {at}"
                )

    def story(self) -> str:
        return "\n".join(self.log)


def _steps(tensor: Any) -> list[int]:
    """Strides, where they mean something."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]


def _grad(tensor: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensor.grad


def _leaf(t: Any, number: int) -> Any:
    return (t.arange(1.0, 7) / (1 + number % 5)).view(2, 3).clone().requires_grad_(number % 2 == 0)


def _view(t: Any, number: int, x: Any) -> Any:
    kind = number % 6
    if kind == 0:
        return x.t() if x.ndim == 2 else x.view(-1)
    if kind == 1:
        return x[0] if x.ndim else x.view(1)
    if kind == 2:
        return x[..., : 1 + number % 2] if x.ndim else x.expand(1)
    return x.view(-1) if kind == 3 and x.is_contiguous() else x.detach() if kind == 4 else x.unsqueeze(0)[0]


def _binary(t: Any, number: int, x: Any, y: Any) -> Any:
    return (x * 0.5 + y.sum() * 0.1) if number % 3 else x.sum() * y


def _inplace(t: Any, number: int, x: Any, y: Any) -> Any:
    other = y.sum() * 0.1 if number % 4 else 0.5
    kind = number % 5
    if kind == 0:
        x.mul_(other)
    elif kind == 1:
        x.add_(other)
    elif kind == 2:
        x.copy_(y.sum().expand(x.shape))
    elif kind == 3:
        x.zero_()
    else:
        x[...] = other
    return None


def _inplace_unrecorded(t: Any, number: int, x: Any, y: Any) -> Any:
    with t.no_grad() if number % 2 else t.set_grad_enabled(False):
        return _inplace(t, number // 2, x, y)


def _unrecorded(t: Any, number: int, x: Any, y: Any) -> Any:
    with t.no_grad():
        return _binary(t, number, x, y)


def _require(t: Any, number: int, x: Any) -> Any:
    """Not on what has views: PyTorch lets these claim to require a gradient that does not flow."""
    return (x.detach().clone() if x.is_leaf else x).requires_grad_(number % 4 != 0)


def _clone(t: Any, number: int, x: Any) -> Any:
    return x.clone()


def _drop_grad(t: Any, number: int, x: Any) -> Any:
    x.grad = None


def _backward(t: Any, number: int, x: Any) -> Any:
    if not x.requires_grad:
        raise RuntimeError("nothing to do")
    (x * 1.5).sum().backward(retain_graph=True)


_STEPS = {
    "leaf": _leaf, "view": _view, "binary": _binary, "inplace": _inplace, "inplace_unrecorded": _inplace_unrecorded,
    "unrecorded": _unrecorded, "require": _require, "clone": _clone, "drop_grad": _drop_grad, "backward": _backward,
}  # fmt: skip


@pytest.mark.parametrize("number", range(25))
def test_flags_and_values_are_pytorchs_in_random_programs(tg: Any, seed: int, number: int) -> None:
    Program(seed + number).run()
