"""What tests of compiled functions call beside backends: inputs, losses, texts of graphs, and decorators of tests."""

from __future__ import annotations

import random
import re
import sys
import unittest
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.config import dynamo_config
from telegrad.nn.modules.module import Module
from telegrad.random import manual_seed
from telegrad.utils._pytree import tree_leaves
from telegrad_protocol.dtypes import float32

_PREFIX = "_orig_mod."


def rand_strided(
    size: Sequence[int], stride: Sequence[int], dtype: Any = float32, device: Any = "cpu", extra_size: int = 0
) -> Tensor:  # fmt: skip
    """Return a tensor of this size and these strides: random numbers, or zeros where its type is of integers."""
    needed = extra_size
    if all([length > 0 for length in size]):
        needed += 1 + sum([(length - 1) * step for length, step in zip(size, stride, strict=True)])
    if dtype.is_floating_point:
        elements = function("randn")(needed, device=device).to(dtype)
    else:
        elements = function("zeros")(needed, dtype=dtype, device=device)
    made: Tensor = elements.as_strided(size, stride)
    return made


def clone_me(x: Tensor | None) -> Tensor | None:
    """Return a copy that is a leaf and needs gradients as the tensor does; None for None."""
    return None if x is None else x.detach().clone().requires_grad_(x.requires_grad)


def requires_bwd_pass(out: Any) -> bool:
    """Tell whether any tensor of a result needs gradients."""
    return any([leaf.requires_grad for leaf in tree_leaves(out) if isinstance(leaf, Tensor)])


def reduce_to_scalar_loss(out: Any) -> Any:
    """Return the mean of a tensor, or that of the means of a list's or a dict's tensors."""
    if isinstance(out, Tensor):
        return out.sum() / out.numel()
    if hasattr(out, "logits"):
        return reduce_to_scalar_loss(out.logits)
    if isinstance(out, (list, tuple)):
        return sum([reduce_to_scalar_loss(one) for one in out]) / len(out)
    if isinstance(out, dict):
        return sum([reduce_to_scalar_loss(one) for one in out.values()]) / len(out)
    raise NotImplementedError(
        f"reduce_to_scalar_loss: {type(out).__name__} is no tensor, no list or dict of tensors, and has no logits"
    )


def collect_results(model: Module, prediction: Any, loss: Any, example_inputs: Any) -> list[Any]:
    """Return a prediction, its loss, gradients, parameters and buffers by name, and gradients of inputs, to compare."""
    named = {remove_optimized_module_prefix(name): one for name, one in model.named_parameters()}
    gradients = {
        f"{name}.grad": function("zeros_like")(one) if one.grad is None else one.grad for name, one in named.items()
    }
    buffers = {remove_optimized_module_prefix(name): one for name, one in model.named_buffers()}
    inputs = [leaf.grad for leaf in tree_leaves(example_inputs) if isinstance(leaf, Tensor)]
    return [prediction, loss, gradients, named, buffers, *inputs]


def remove_optimized_module_prefix(name: str) -> str:
    """Return the name that a parameter of a compiled module has in the module itself."""
    return name.removeprefix(_PREFIX)


def reset_rng_state(use_xla: bool = False) -> None:
    """Begin random numbers anew, with the same seed each time."""
    manual_seed(1337)
    random.seed(1337)
    np.random.seed(1337)


def check_dynamic_shape_capture() -> bool:
    """Whether the first graph of a function has sizes that vary."""
    return not dynamo_config.assume_static_by_default


def strip_comment(code: str) -> str:
    """Return code without its comments, which name files."""
    return re.sub(r"(?m)^ *#.*\n?", "", code)


def remove_trailing_space(code: str) -> str:
    """Return code whose lines end with no blanks."""
    return "\n".join([line.rstrip() for line in code.split("\n")])


def empty_line_normalizer(code: str) -> str:
    """Return code without empty lines."""
    return re.sub(r"[\r\n]+", "\n", code)


def normalize_gm(gm_str: str) -> str:
    """Return the code of a graph without comments and blanks at ends of lines, and with one empty line at most."""
    return re.sub(r"\n{3,}", "\n\n", remove_trailing_space(strip_comment(gm_str)))


def make_test_cls_with_patches(
    cls: type, cls_prefix: str, fn_suffix: str, *patches: Any, xfail_prop: str | None = None,
    decorator: Callable[..., Any] = lambda test: test,
) -> type:  # fmt: skip
    """Return a test case like another one, whose tests run under other settings: (config, name, value) each."""
    members = {
        name: value for name, value in vars(cls).items() if not name.startswith("test_") and name not in _OF_CLASSES
    }
    made = type(
        f"{cls_prefix}{cls.__name__}", cls.__bases__, {**members, "__qualname__": f"{cls_prefix}{cls.__name__}"}
    )
    for name in [name for name in dir(cls) if name.startswith("test_")]:
        test = getattr(cls, name)
        if not callable(test):
            setattr(made, name, test)
            continue
        patched = decorator(_patched(test, patches))
        fails = xfail_prop is not None and hasattr(test, xfail_prop)
        setattr(made, f"{name}{fn_suffix}", unittest.expectedFailure(patched) if fails else patched)
        if made.__dict__.get(name) is None and name in dir(made):
            setattr(made, name, None)
    return made


_OF_CLASSES = ("__dict__", "__weakref__")


def _patched(test: Callable[..., Any], patches: Sequence[Any]) -> Callable[..., Any]:
    @wraps(test)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for config, name, value in [patch[:3] for patch in patches]:
                stack.enter_context(config.patch({name: value}))
            return test(self, *args, **kwargs)

    return run


def expectedFailureDynamic(fn: Any) -> Any:
    """Note of a test that it fails where sizes vary from the first graph on."""
    fn._expected_failure_dynamic = True
    return fn


skipIfNotPy311 = unittest.skipIf(sys.version_info < (3, 11), "requires Python 3.11 or newer")
skipIfNotPy312 = unittest.skipIf(sys.version_info < (3, 12), "requires Python 3.12 or newer")
skipIfPy312 = unittest.skipIf(sys.version_info >= (3, 12), "is for Pythons before 3.12")


def xfailIfPy312(fn: Any) -> Any:
    """Expect a test to fail with Python 3.12 and newer."""
    return unittest.expectedFailure(fn) if sys.version_info >= (3, 12) else fn
