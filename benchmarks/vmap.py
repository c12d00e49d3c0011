"""Gradients per sample and Jacobians by ``vmap``, beside PyTorch's on the CPU: ``python -m benchmarks.vmap [--save]``.

``over one pass`` is the time of the gradients of all samples over that of the ordinary gradient of their mean; a loop
takes about as many times that as there are samples. ``over PyTorch`` is telegrad's time over PyTorch's ``torch.func``.
Both run here, telegrad through a server of its own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

import telegrad

from .measure import Figure, about, figure, repeat, save

BATCH = 64
_REPEATS = 9


def _mlp(library: Any) -> tuple[Any, Any]:
    nn = library.nn
    layers = (nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 10))
    return nn.Sequential(*layers), library.randn(BATCH, 256)


def _cnn(library: Any) -> tuple[Any, Any]:
    nn = library.nn
    layers = (
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 10 * 10, 10),
    )  # fmt: skip
    return nn.Sequential(*layers), library.randn(BATCH, 1, 28, 28)


def _transformer(library: Any) -> tuple[Any, Any]:
    layer = library.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return library.nn.Sequential(layer, library.nn.Flatten(), library.nn.Linear(16 * 64, 10)), library.randn(
        BATCH, 16, 64
    )


MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}


def _works(library: Any, make: Callable[[Any], tuple[Any, Any]]) -> dict[str, Callable[[], Any]]:
    """The gradients of all samples, of their mean, and of one after another; each waits for its results."""
    library.manual_seed(0)
    model, x = make(library)
    y = library.arange(BATCH) % 10
    func = library.func
    params = {name: parameter.detach() for name, parameter in model.named_parameters()}
    cross_entropy = library.nn.functional.cross_entropy

    def loss(params: Any, sample: Any, label: Any) -> Any:
        return cross_entropy(func.functional_call(model, params, (sample[None],)), label[None])

    def mean(params: Any) -> Any:
        return cross_entropy(func.functional_call(model, params, (x,)), y)

    per_sample = func.vmap(func.grad(loss), in_dims=(None, 0, 0))
    one, all_of_them = func.grad(loss), func.grad(mean)

    def wait(gradients: Any) -> None:
        next(iter(gradients.values())).sum().item()

    return {
        "per sample": lambda: wait(per_sample(params, x, y)),
        "one pass": lambda: wait(all_of_them(params)),
        "loop": lambda: [wait(g) for g in [one(params, x[n], y[n]) for n in range(BATCH)][-1:]],
    }


def _jacobian(library: Any) -> dict[str, Callable[[], Any]]:
    library.manual_seed(0)
    weights, x = library.randn(256, 256), library.randn(256)
    run = library.func.jacrev(lambda a: library.tanh(weights @ library.relu(weights @ a)))
    forward = library.func.jacfwd(lambda a: library.tanh(weights @ library.relu(weights @ a)))
    return {"jacrev": lambda: run(x).sum().item(), "jacfwd": lambda: forward(x).sum().item()}


def _compare(name: str, works: Callable[[Any], dict[str, Callable[[], Any]]]) -> list[Figure]:
    ours, theirs = works(telegrad), works(torch)
    measured = {work: repeat(run, 3 if work == "loop" else _REPEATS, 2) for work, run in ours.items()}
    other = {work: repeat(run, 3 if work == "loop" else _REPEATS, 2) for work, run in theirs.items()}
    figures = []
    for work, samples in measured.items():
        reference = statistics.median(other[work])
        text = f"PyTorch {reference * 1e3:.3g} ms"
        figures.append(figure(f"{name}: {work}", "ms", [s * 1e3 for s in samples], baseline=text))
    if "per sample" in measured:
        one = statistics.median(measured["one pass"])
        theirs_over = statistics.median(other["per sample"]) / statistics.median(other["one pass"])
        figures.append(
            figure(
                f"{name}: per sample over one pass", "x", [s / one for s in measured["per sample"]], at_most=5,
                baseline=f"PyTorch {theirs_over:.3g}",
            )
        )  # fmt: skip
    return figures


def main() -> int:
    """Measure everything; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vmap", description=__doc__)
    parser.add_argument("--only", default="", help="a part of a name")
    parser.add_argument("--save", default="", help="name of a file under benchmarks/results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: list[Figure] = []
    cases: dict[str, Any] = {name: lambda library, make=make: _works(library, make) for name, make in MODELS.items()}
    cases["256 to 256"] = _jacobian
    for name, works in cases.items():
        if options.only in name:
            for measured in _compare(name, works):
                print(measured.row(), flush=True)
                figures.append(measured)
    if options.save:
        save(options.save, figures, **about("cpu"))
    return int(any(measured.met is False for measured in figures))


if __name__ == "__main__":
    sys.exit(main())
