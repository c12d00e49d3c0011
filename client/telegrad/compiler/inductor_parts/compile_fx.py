"""``torch._inductor.compile_fx``: what backends of a program's own hand their graphs on to.

A graph is called as it is, and each call of an operation goes to the server, which makes the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def compile_fx(model_: Any, example_inputs_: Sequence[Any], **options: Any) -> Any:
    """Return what computes a graph: its module. The options are PyTorch's, and change nothing."""
    return model_.forward


def compile_fx_inner(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Any:
    """Return what computes a graph of operators: its module. The options are PyTorch's, and change nothing."""
    return gm.forward
