"""Kernels of joined steps for the host, made of the single operations by the roles that a description gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda.runtime.launch import is_collecting
from server.engine.cuda.texts import DescribedDevice
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.programs.fused import FUSERS, JOINERS, Executor, Joiner
from server.engine.programs.joined import CASTS, GRADIENTS, NORM, PARTS, PRODUCTS, SUMS, WEIGHTS, Joined
from server.engine.value import Backend, Value

from ..ops.adapters import EngineAdapter

Values = dict[str, Value]


class ExecutorDevice(DescribedDevice):
    """What executors are made for where there is no device."""

    empty = None

    def as_current(self) -> Any:
        return nullcontext()

    def deferring(self, launch: Any) -> Any:
        return launch

    def on_device(self, run: Any) -> Any:
        return run


def _norm(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    made = {"total": F.add(values["input"], values["other"])} if "other" in values else {}
    input = made.get("total", values["input"])
    affine = [values.get("weight"), values.get("bias")][: 2 if joined.name == "_layer_norm" else 1]
    results = getattr(F, joined.name)(input, joined.attributes[0], *affine, joined.attributes[1])
    made.update(zip(("out", "mean", "rstd") if len(results) == 3 else ("out", "rstd"), results, strict=True))
    if "copy" in news:
        made["copy"] = F._to_copy(made["out"], dtype=news["copy"].dtype)
    return made


def _gradients(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    input = values["input"]
    statistics = [values[role] for role in ("mean", "rstd") if role in values]
    grad_out = F._to_copy(values["grad_out"], dtype=input.dtype)
    results = getattr(F, joined.name)(grad_out, input, *statistics, values.get("weight"), joined.attributes[0])
    made = dict(zip(("grad_input", "grad_weight", "grad_bias"), results, strict=False))
    if "other" in values:
        made["grad_input"] = F.add(values["other"], made["grad_input"])
    if "copy" in news:
        made["copy"] = F._to_copy(made["grad_input"], dtype=news["copy"].dtype)
    if "sums" in news:
        made["sums"] = _summed(made["copy" if "copy" in news else "grad_input"])
    return made


def _summed(rows: Value) -> Value:
    """The gradient of a bias, in the order in which a layer's operation adds it up."""
    summed: Value = dispatch(OPERATORS["_linear_backward"], (rows, None, None, True))[0]
    return summed


def _sums(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    kernel, place = joined.attributes
    operands = tuple([values[role] for role, _ in joined.loads])
    made = FUSERS[keys.CPU].makes(operands[0].backend, kernel).run(operands)
    stored = [*made, *[operands[number] for number, _ in kernel.stores]]
    return {**dict(zip([role for role in news if role != "sums"], made, strict=True)), "sums": _summed(stored[place])}


def _parts(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    is_causal, scale, order = joined.attributes
    operands = [values[role] for role in ("grad_output", "query", "key", "value")]
    rest = (values["output"], values["logsumexp"], is_causal, scale)
    made = dispatch(OPERATORS["_attention_backward"], (*operands, values.get("attn_mask"), *rest))
    rows = [F.transpose(made[place], 1, 2) for place in order]
    return {"out": F.cat(tuple([F.reshape(one, (*one.shape[:2], -1)) for one in rows]), 2)}


def _casts(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    return {role: F._to_copy(values[role], dtype=meta.dtype) for role, meta in news.items()}


def _products(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    products, rows = joined.attributes[0], values["input"]
    made: Values = {}
    if products.norm:
        affine = [values.get("scale"), values.get("shift")][: 2 if products.norm == "_layer_norm" else 1]
        rows = getattr(F, products.norm)(rows, (rows.meta.shape[-1],), *affine, products.eps)[0]
    for part in products.parts:
        of = {
            weight: F.linear(rows, values[weight], values.get(bias)) for weight, bias in zip(part.weights, part.biases)
        }
        operands = tuple([{**values, **of}[source] for source in part.sources])
        kernel, count = part.kernel, len(part.kernel.loads)
        named = list(zip(part.outs, kernel.news, strict=True))
        made |= {out: operands[register.number] for out, (register, _) in named if register.number < count}
        computed = [(out, new) for out, new in named if new[0].number >= count]
        if kernel.computes:
            run = FUSERS[keys.CPU].makes(rows.backend, kernel._replace(news=tuple([new for _, new in computed]))).run
            made |= dict(zip([out for out, _ in computed], run(operands), strict=True))
    return made


def _weights(joined: Joined, values: Values, news: dict[str, Any]) -> Values:
    made: Values = {}
    for role in [role for role in news if role.startswith("weight")]:
        number, bias = role.split()[1], role.replace("weight", "bias")
        operands = (values[f"grad {number}"], values[f"input {number}"], None, bias in news)
        made |= dict(zip((role, bias), dispatch(OPERATORS["_linear_backward"], operands), strict=False))
    return made


def noting_kernels(monkeypatch: pytest.MonkeyPatch, key: int, *kinds: str) -> list[Joined]:
    """Have a backend's steps joined as on a GPU until the test ends; returns what kernels are made of."""
    made: list[Joined] = []
    for kind in kinds:
        joiner = JOINERS[keys.CUDA, kind]

        def makes(backend: Backend, joined: Joined, own: Joiner = joiner) -> Executor:
            if not is_collecting():
                made.append(joined)
            return own.makes(backend, joined)

        monkeypatch.setitem(JOINERS, (key, kind), joiner._replace(makes=makes))
    return made


def join_on_the_host(monkeypatch: pytest.MonkeyPatch) -> list[Joined]:
    """Have kernels of joined steps made for the host until the test ends; returns what they are made of."""
    made: list[Joined] = []

    def joiner(compute: Callable[..., Values]) -> Joiner:
        def makes(backend: Backend, joined: Joined) -> Executor:
            made.append(joined)

            def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
                values = dict(zip([role for role, _ in joined.loads], args, strict=True))
                results = compute(joined, values, dict(joined.news))
                for role, meta in joined.news:
                    assert results[role].meta is meta
                return tuple([results[role] for role, _ in joined.news])

            return Executor(run, repr(joined), 0)

        return Joiner(lambda joined: joined.kind != SUMS or not joined.attributes[0].stores, makes)

    for kind, compute in (
        (NORM, _norm),
        (GRADIENTS, _gradients),
        (CASTS, _casts),
        (SUMS, _sums),
        (PARTS, _parts),
        (PRODUCTS, _products),
        (WEIGHTS, _weights),
    ):
        monkeypatch.setitem(JOINERS, (keys.CPU, kind), joiner(compute))
    return made


def shifted(adapter: EngineAdapter, tensor: torch.Tensor, by: int) -> Value:
    """A copy of a tensor that begins so many elements within its memory."""
    flat = torch.zeros(tensor.numel() + by, dtype=tensor.dtype)
    flat[by:] = tensor.reshape(-1)
    value: Value = adapter.tensor(flat[by:].view(tensor.shape))
    return value
