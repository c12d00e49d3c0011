"""Random lists of operations, on tensors of many types and layouts that may share memory."""

from __future__ import annotations

import random
from typing import Any

import torch

from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Operator
from server.engine.programs.graph import Graph, Slot, Step
from server.engine.signature import metas_of
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.meta import Meta

from ..ops.adapters import EngineAdapter

ELEMENTWISE = [
    operator
    for operator in OPERATORS.values()
    if (
        operator.op.promotion
        and operator.op.form != "out"
        and not operator.op.is_random
        and "bce" not in operator.op.name
    )
    or operator.op.name in ("_to_copy", "masked_fill", "masked_fill_", "clone", "copy_")
]
SLOW = ("special_", "polygamma", "_polygamma", "igamma", "digamma", "lgamma", "gcd", "lcm")
QUICK = [operator for operator in ELEMENTWISE if not operator.op.name.startswith(SLOW)]
"""Those that take no long time on large tensors."""
LARGEST = 1 << 19
"""Elements of a result; transposed operands that broadcast would make far larger ones."""
OTHERS = [
    OPERATORS[name]
    for name in ("t", "transpose", "unsqueeze", "expand_as", "sum", "amax", "cumsum", "zeros_like", "rand_like",
                 "softmax.functional", "uniform_", "contiguous", "view_as")
]  # fmt: skip
TYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)
NUMBERS: dict[str, Any] = {"scalar": (2, 0.5, -3, True), "int": (0, 1), "float": (0.5, 2.0), "bool": (True, False)}


class RandomProgram:
    """A program that is recorded while it runs: what an operation refuses is left out."""

    def __init__(
        self, adapter: EngineAdapter, rng: random.Random, large: bool, types: tuple[torch.dtype, ...] = TYPES
    ) -> None:
        self.adapter, self.rng, self.types = adapter, rng, types
        last = rng.choice((40_000, 16_385)) if large else rng.randint(1, 5)
        self.shape = (rng.randint(1, 3), rng.randint(1, 4), last)[rng.randint(0, 2) :]
        self.sources: list[torch.Tensor] = []
        self.values: list[Value] = []
        self.steps: list[Step] = []
        for _ in range(rng.randint(2, 4)):
            self._add_input()
        self.inputs = len(self.values)

    def _add_input(self) -> None:
        """A tensor that broadcasts to the shape: dense, transposed, with gaps, repeated, or the memory of another."""
        rng = self.rng
        if self.sources and rng.random() < 0.2:
            self.sources.append(self.sources[-1])
            self.values.append(self.values[-1].alias())
            return
        shape = [n if rng.random() < 0.8 else 1 for n in self.shape][rng.choice((0, 0, 0, 1)) :]
        dtype = rng.choice(self.types)
        tensor = torch.randint(-4, 5, [*shape, 2]) if not dtype.is_floating_point else torch.randn(*shape, 2) * 2
        tensor = tensor.to(dtype)[..., 0] if rng.random() < 0.4 else tensor.to(dtype)[..., 0].clone()
        if len(shape) > 1 and rng.random() < 0.3:
            tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
        self.sources.append(tensor)
        self.values.append(self.adapter.tensor(tensor))

    def record(self, count: int, operators: list[Operator]) -> None:
        """Run random operations until ``count`` were taken."""
        while len(self.steps) < count:
            operator = self.rng.choice(operators if self.rng.random() < 0.85 else OTHERS)
            args = [self._argument(param) for param in operator.op.params]
            if operator.op.base is not operator.op and args[0].__class__ is not Slot:
                continue
            real = tuple([self.values[arg.number] if arg.__class__ is Slot else arg for arg in args])
            try:
                bound = operator.op.normalize(real, lambda item: item.__class__ is Value)
                out = operator.op.infer(metas_of(bound))
                if isinstance(out, Meta) and out.numel > LARGEST:
                    continue
                result = dispatch(operator, bound)
            except (TelegradError, TypeError, ValueError, OverflowError):
                continue
            self.steps.append(Step(operator, tuple(args), (Slot(len(self.values)),)))
            self.values.append(result)

    def _argument(self, param: Any) -> Any:
        kind = param.kind.name.removesuffix("?")
        if kind.startswith("tensor") and (kind == "tensor" or self.rng.random() < 0.7):
            recent = self.rng.random() < 0.6
            return Slot(self.rng.randrange(max(0, len(self.values) - 4) if recent else 0, len(self.values)))
        if kind in ("scalar", "float") and not param.required and self.rng.random() < 0.3:
            return self.rng.choice((*NUMBERS["scalar"][:3], -0.5))
        if not param.required:
            return param.default if kind != "dtype" else self.rng.choice((dtypes.float32, dtypes.float64, dtypes.int32))
        return self.rng.choice(NUMBERS.get("scalar" if "scalar" in kind else kind, (0,)))

    def graph(self) -> Graph:
        """What was recorded, of which some results are wanted."""
        wanted = self.rng.sample(range(len(self.values)), min(len(self.values), 3))
        inputs = [Slot(number) for number in range(self.inputs)]
        return Graph(self.steps, inputs, [Slot(number) for number in {*wanted, len(self.values) - 1}])

    def fresh_inputs(self) -> list[Value]:
        """Inputs as at the beginning, sharing memory as they did."""
        tensors: dict[int, Value] = {}
        return [tensors.setdefault(id(t), self.adapter.tensor(t)).alias() for t in self.sources]
