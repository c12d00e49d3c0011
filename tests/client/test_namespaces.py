"""The namespaces beside the top level: every public name of PyTorch's, loaded when a program first names it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.ops.namespaces import NAMESPACES

NO_FUNCTIONS = {"common_notes", "common_args", "factory_common_args", "multi_dim_common", "torch", "Tensor", "windows"}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_public_name_of_pytorch_is_there(namespace: str) -> None:
    theirs = importlib.import_module(f"torch.{namespace}")
    ours = importlib.import_module(f"telegrad.{namespace}")
    names = {name for name in dir(theirs) if not name.startswith("_")} - NO_FUNCTIONS
    assert len(names) > 5
    assert {name for name in names if not hasattr(ours, name)} == set()


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_functions_are_named_as_users_call_them(namespace: str) -> None:
    ours = importlib.import_module(f"telegrad.{namespace}")
    functions = {name: value for name, value in vars(ours).items() if isinstance(value, FunctionType)}
    named = {name: (value.__module__, value.__name__) for name, value in functions.items() if not name.startswith("_")}
    assert named == {name: (f"telegrad.{namespace}", name) for name in named}


def test_namespaces_are_loaded_when_they_are_named() -> None:
    heads = sorted({f"telegrad.{namespace.partition('.')[0]}" for namespace in NAMESPACES})
    program = f"import sys, telegrad; print([name for name in {heads} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_special_functions_over_a_session(tg: Any) -> None:
    values = np.linspace(0.2, 3, 7)
    x = tg.tensor(values, requires_grad=True)
    theirs = torch.tensor(values, requires_grad=True)
    tg.special.i1(x).sum().backward()
    torch.special.i1(theirs).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(x.detach().polygamma(2).numpy(), theirs.detach().polygamma(2).numpy(), rtol=1e-9)
    np.testing.assert_allclose(x.detach().polygamma_(1).numpy(), theirs.detach().polygamma(1).numpy(), rtol=1e-9)
    assert inspect.signature(tg.special.expit).parameters.keys() == {"input", "out"}
    assert tg.special.zeta(2.0, tg.tensor([1.0])).item() == pytest.approx(np.pi**2 / 6)
