"""Recurrent layers beside PyTorch's on a GPU, where both call cuDNN: ``python -m benchmarks.recurrent [--save PATH]``.

A figure is PyTorch's time over telegrad's, for all layers over whole sequences: forward alone as in inference, and
forward with all gradients. PyTorch's weights lie in one piece of memory, as its modules have them.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

import torch

from server.engine import functional as F
from server.engine.backward import grad

from . import on_gpu
from .measure import Figure, about, save_at

_AT_LEAST = 0.97


class Case(NamedTuple):
    """Layers and the sequences that they run over."""

    kind: str
    steps: int
    batch: int
    features: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    dtype: torch.dtype = torch.float32
    projection: int = 0
    is_packed: bool = False

    @property
    def label(self) -> str:
        """The name of the case's figures: kind and sizes of the layers, sequences and type."""
        parts = [f"{self.kind} {self.features} to {self.hidden}, {self.layers} layers", f"{self.batch} x {self.steps}"]
        extras = {"both directions": self.bidirectional, f"projected to {self.projection}": self.projection,
                  "packed": self.is_packed}  # fmt: skip
        return ", ".join([*parts, *[name for name, is_on in extras.items() if is_on], str(self.dtype)[6:]])


CASES = [
    Case("LSTM", 64, 64, 512, 512), Case("LSTM", 64, 64, 512, 512, 2), Case("LSTM", 128, 32, 256, 256, 2, True),
    Case("LSTM", 35, 20, 650, 650, 2), Case("LSTM", 64, 64, 1024, 1024, 2, dtype=torch.bfloat16),
    Case("LSTM", 64, 64, 512, 512, 1, dtype=torch.float16), Case("LSTM", 64, 64, 512, 512, 2, projection=128),
    Case("LSTM", 64, 64, 512, 512, 2, is_packed=True), Case("LSTM", 8, 1, 32, 32), Case("GRU", 64, 64, 512, 512, 2),
    Case("GRU", 128, 32, 256, 256, 1, True, torch.float16), Case("RNN", 64, 64, 512, 512, 2),
]  # fmt: skip


def _compare(case: Case) -> list[Figure]:
    options: dict[str, Any] = {"proj_size": case.projection} if case.projection else {}
    kind = getattr(torch.nn, case.kind)
    layer = kind(
        case.features, case.hidden, case.layers, bidirectional=case.bidirectional, device="cuda", dtype=case.dtype,
        **options,
    )  # fmt: skip
    lengths = torch.linspace(case.steps, max(case.steps // 4, 1), case.batch).long()
    x = torch.randn(case.steps, case.batch, case.features, device="cuda", dtype=case.dtype)
    given: Any = torch.nn.utils.rnn.pack_padded_sequence(x, lengths) if case.is_packed else x
    rows = given.data if case.is_packed else x.reshape(-1, case.features)
    sizes = tuple(given.batch_sizes.tolist()) if case.is_packed else ()
    directions = case.layers * (2 if case.bidirectional else 1)
    outputs = case.projection or case.hidden
    states = [torch.zeros(directions, case.batch, outputs, device="cuda", dtype=case.dtype)]
    if case.kind == "LSTM":
        states.append(torch.zeros(directions, case.batch, case.hidden, device="cuda", dtype=case.dtype))
    initial: Any = tuple(states) if case.kind == "LSTM" else states[0]
    mode = "RNN_TANH" if case.kind == "RNN" else case.kind
    weights = [on_gpu.to_value(w.detach().clone()) for w in layer.parameters()]
    leaves = [on_gpu.to_value(w.detach().clone().requires_grad_()) for w in layer.parameters()]
    value, h, *c = (on_gpu.to_value(t) for t in (rows, *states))

    def ours(with_weights: list[Any]) -> Any:
        return F._rnn(
            value, h, c[0] if c else None, with_weights, mode, case.layers, case.bidirectional, True, 0.0, sizes
        )[0]  # fmt: skip

    def theirs() -> Any:
        output = layer(given, initial)[0]
        return output.data if case.is_packed else output

    made = theirs()
    d = torch.randn_like(made)
    cotangent = on_gpu.to_value(d.reshape(-1, d.shape[-1]))

    def inference() -> Any:
        with torch.no_grad():
            return theirs()

    error = (
        (on_gpu.to_tensor(ours(weights)).double() - made.detach().reshape(-1, d.shape[-1]).cpu().double()).abs().max()
    )
    parameters = list(layer.parameters())
    return [
        on_gpu.compare(f"inference, {case.label}", lambda: ours(weights), inference, at_least=_AT_LEAST, repeats=5,
                       largest_difference=error.item()),
        on_gpu.compare(f"training, {case.label}", lambda: grad([ours(leaves)], [cotangent], leaves),
                       lambda: torch.autograd.grad(theirs(), parameters, d), at_least=_AT_LEAST, repeats=5),
    ]  # fmt: skip


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recurrent", description=__doc__)
    parser.add_argument("--save", help="write the figures to this file")
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    on_gpu.open_gpu()
    figures = [each for case in CASES if options.only in case.label for each in _compare(case)]
    for each in figures:
        print(each.row())
    if options.save:
        save_at(options.save, figures, **about("cuda"))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
