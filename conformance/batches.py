"""PyTorch's operator database under ``vmap``, through a client and a server: ``make opinfo-vmap``.

Each sample becomes a batch of two by one of its tensors after another, and by all of them. The results must be those of
PyTorch for one element after another, and so must the gradients of the tensors in float64. What PyTorch's own ``vmap``
refuses may be refused. An entry is ``looped`` where some sample is computed element by element.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

import torch

import telegrad
from benchmarks.measure import RESULTS
from telegrad._batching import fallback
from telegrad._session.private_server import PrivateServer

from .entry import _call, _compare, _draws, _leaves
from .scope import reason
from .served import Served, to_telegrad, to_torch, unwrapped, wrapped

_MAX_SAMPLES: Final = 6
_SIZE: Final = 2
_DTYPES: Final = (torch.float64, torch.float32, torch.int64, torch.bool)
_ROUGH: Final = "special."
"""Operators whose values PyTorch computes with errors of single precision."""
_ELEMENTS_DECIDE: Final = frozenset(
    ("argwhere", "bincount", "histc", "histogram", "nonzero_static", "repeat_interleave", "resize_")
)
"""Operators whose shapes or ranges depend on elements, which is refused; PyTorch computes them where shapes agree."""
_KNOWN: Final = {
    "as_strided_scatter": "PyTorch's derivative is wrong",
    "native_batch_norm": "statistics of which some are shared cannot be updated in place",
    "nn.functional.batch_norm": "statistics of which some are shared cannot be updated in place",
}
"""What is refused or computed otherwise, and why; errors of these are not counted."""


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor)]


def _replaced(value: Any, tensors: Iterator[Any]) -> Any:
    """A structure with other tensors in it, in order."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        items = [_replaced(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: _replaced(item, tensors) for key, item in value.items()}
    return value


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """A second element for a batch: other numbers that are as valid as the first ones."""
    plain = tensor.detach()
    if plain.dtype.is_floating_point or plain.dtype.is_complex:
        return plain * 0.75
    return plain.flip(0) if plain.ndim else plain.clone()


def _choices(count: int) -> list[tuple[bool, ...]]:
    """Which of the tensors are batched: each alone, and all."""
    chosen = [tuple([place == own for place in range(count)]) for own in range(count)]
    return chosen if count < 2 else [*chosen, (True,) * count]


class _Batch:
    """A sample of which some tensors are batches."""

    def __init__(self, info: Any, sample: Any, batched: tuple[bool, ...], dim: int) -> None:
        self.info = info
        self.structure = [[sample.input, *sample.args], sample.kwargs]
        self.process = sample.output_process_fn_grad
        self.firsts = _tensors(self.structure)
        self.batched = batched
        self.tracked = [tensor.requires_grad for tensor in self.firsts]
        self.dim = dim
        self.rows = [
            [tensor.detach(), _other(tensor)] if is_batched else [tensor.detach()] * _SIZE
            for tensor, is_batched in zip(self.firsts, batched, strict=True)
        ]

    def theirs(self, requires_grad: bool = False) -> tuple[list[list[Any]], list[list[torch.Tensor]]]:
        """What PyTorch computes for each element, and the tensors that it was computed from."""
        results, leaves = [], []
        tracked = [requires_grad and is_tracked for is_tracked in self.tracked]
        shared = [row[0].clone().requires_grad_(is_tracked) for row, is_tracked in zip(self.rows, tracked, strict=True)]
        for number in range(_SIZE):
            own = [
                row[number].clone().requires_grad_(is_tracked) if is_batched else same
                for row, is_batched, is_tracked, same in zip(self.rows, self.batched, tracked, shared, strict=True)
            ]
            args, kwargs = _replaced(self.structure, iter(own))
            results.append(list(_leaves(self.process(self.info.op(*args, **kwargs)))))
            leaves.append(own)
        return results, leaves

    def inputs(self, requires_grad: bool = False) -> list[Any]:
        """The tensors of telegrad's that are mapped."""
        made = []
        for row, is_batched, is_tracked in zip(self.rows, self.batched, self.tracked, strict=True):
            whole = torch.stack(row, self.dim if row[0].ndim else 0) if is_batched else row[0]
            tensor = to_telegrad(whole)
            made.append(tensor.requires_grad_() if requires_grad and is_tracked else tensor)
        return made

    def dims(self) -> tuple[int | None, ...]:
        """Which dimension of each tensor is the batch."""
        return tuple(
            [
                (self.dim if row[0].ndim else 0) if is_batched else None
                for row, is_batched in zip(self.rows, self.batched)
            ]
        )

    def ours(self, inputs: list[Any]) -> list[Any]:
        """What telegrad computes for the batch."""

        def run(*tensors: Any) -> Any:
            stand_ins = [Served(tensor) for tensor in tensors]
            args, kwargs = _replaced(self.structure, iter(stand_ins))
            return tuple(_leaves(unwrapped(self.process(wrapped(_call(self.info, self.info.op, *args, **kwargs))))))

        mapped: Any = telegrad.vmap(run, self.dims(), randomness="different")
        return list(mapped(*inputs))

    def is_refused_by_pytorch(self) -> bool:
        """Whether PyTorch's own ``vmap`` does not compute this."""

        def run(*tensors: Any) -> Any:
            args, kwargs = _replaced(self.structure, iter(tensors))
            return tuple(_tensors(self.process(self.info.op(*args, **kwargs))))

        wholes = [
            torch.stack(row, self.dim if row[0].ndim else 0) if is_batched else row[0]
            for row, is_batched in zip(self.rows, self.batched, strict=True)
        ]
        try:
            torch.vmap(run, self.dims(), randomness="different")(*wholes)
        except Exception:
            return True
        return False


def _check_forward(batch: _Batch, draws: bool) -> None:
    theirs, _ = batch.theirs()
    if not all(isinstance(leaf, torch.Tensor) for leaf in theirs[0]):
        return
    if any(a.shape != b.shape for a, b in zip(*theirs, strict=False)):
        return  # the shape depends on elements
    ours = batch.ours(batch.inputs())
    expected = [torch.stack([leaf.detach().resolve_conj().resolve_neg() for leaf in column]) for column in zip(*theirs)]
    _compare(ours, expected, draws, slack=4.0)


def _check_gradient(batch: _Batch) -> None:
    theirs, leaves = batch.theirs(requires_grad=True)
    places = [n for n, leaf in enumerate(theirs[0]) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not places or any(a.shape != b.shape for a, b in zip(*theirs, strict=True)):
        return
    weights = {n: torch.randn(_SIZE, *theirs[0][n].shape, dtype=theirs[0][n].dtype) for n in places}
    outs = [row[n] for row in theirs for n in places]
    given = [weights[n][number] for number in range(_SIZE) for n in places]
    known = [place for place, tensor in enumerate(leaves[0]) if tensor.requires_grad]
    flat = [row[place] for place in known for row in (leaves if batch.batched[place] else leaves[:1])]
    grads = iter(torch.autograd.grad(outs, flat, given, allow_unused=True))
    inputs = batch.inputs(requires_grad=True)
    results = batch.ours(inputs)
    if not all([results[n].requires_grad for n in places]):
        raise AssertionError("a result requires no gradient")
    own = telegrad.autograd.grad(
        [results[n] for n in places], [inputs[place] for place in known], [to_telegrad(weights[n]) for n in places],
        allow_unused=True,
    )  # fmt: skip
    for place, mine in zip(known, own, strict=True):
        columns = [next(grads) for _ in range(_SIZE if batch.batched[place] else 1)]
        zero = torch.zeros_like(batch.rows[place][0])
        parts = [(zero if g is None else g).resolve_conj().resolve_neg() for g in columns]
        dim = batch.dims()[place]
        other = torch.stack(parts, dim) if dim is not None else parts[0]
        _compare([to_torch(mine)] if mine is not None else [torch.zeros_like(other)], [other], False, slack=20.0)


def check(info: Any) -> dict[str, str]:
    """Return what came of ``forward`` and of ``gradient``: ``passed``, ``looped``, or what is wrong first."""
    results: dict[str, str] = {}
    dtypes = _DTYPES[1:] if info.name.startswith(_ROUGH) else _DTYPES
    dtype = next((dtype for dtype in dtypes if info.supports_dtype(dtype, "cpu")), torch.complex64)
    results["forward"] = _outcome(info, dtype, False, lambda batch, sample: _check_forward(batch, _draws(info, sample)))
    if info.supports_autograd and info.supports_dtype(torch.float64, "cpu"):
        results["gradient"] = _outcome(
            info, torch.float64, True, lambda batch, sample: None if _draws(info, sample) else _check_gradient(batch)
        )
    return results


def _outcome(info: Any, dtype: torch.dtype, is_tracked: bool, run: Callable[[_Batch, Any], None]) -> str:
    fallback._WARNED.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=is_tracked), _MAX_SAMPLES):
            tensors = _tensors([sample.input, sample.args, sample.kwargs])
            if any(t.layout is not torch.strided for t in tensors) or len(tensors) > 8:
                continue
            for number, batched in enumerate(_choices(len(tensors))):
                batch = _Batch(info, sample, batched, -1 if number % 2 else 0)
                torch.manual_seed(0)
                try:
                    run(batch, sample)
                except Exception as error:
                    is_refusal = not isinstance(error, AssertionError)
                    if info.name in _KNOWN or (is_refusal and info.name in _ELEMENTS_DECIDE):
                        continue
                    if is_refusal and batch.is_refused_by_pytorch():
                        continue
                    text = " ".join(str(error).partition("caused by")[0].split())[:240]
                    return f"{type(error).__name__}: {text} [{batched}; {_shown(sample)}]"
    return f"looped: {' '.join(sorted(fallback._WARNED))}" if fallback._WARNED else "passed"


def _shown(sample: Any) -> str:
    text = ", ".join(
        [str(tuple(t.shape)) if isinstance(t, torch.Tensor) else repr(t) for t in (sample.input, *sample.args)]
    )
    return (
        f"{text}; {[f'{k}={tuple(v.shape) if isinstance(v, torch.Tensor) else v}' for k, v in sample.kwargs.items()]}"
    )


def _entries() -> list[Any]:
    from tests.ops.database import op_db

    return list(op_db)


def _check(number: int) -> tuple[str, dict[str, str]]:
    info = _entries()[number]
    return f"{info.name}{'.' if info.variant_test_name else ''}{info.variant_test_name}", check(info)


def _join(url: str) -> None:
    telegrad.connect(url)
    telegrad.set_default_device("cpu")


def main() -> int:
    """Run the sweep and print what does not pass; 1 if anything fails."""
    parser = argparse.ArgumentParser(prog="python -m conformance.batches", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save", default="", help="name of a file under benchmarks/results")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what failed, and what is looped")
    options = parser.parse_args()
    numbers = [n for n, info in enumerate(_entries()) if re.search(options.only, info.name) and not reason(info.name)]
    server = PrivateServer(None)
    outcomes: Counter[str] = Counter()
    entries: dict[str, dict[str, str]] = {}
    try:
        with ProcessPoolExecutor(options.processes, get_context("spawn"), _join, (server.url,)) as pool:
            for name, results in pool.map(_check, numbers, chunksize=4):
                entries[name] = results
                kinds = {
                    r.partition(":")[0] if r.startswith(("passed", "looped")) else "failed" for r in results.values()
                }
                outcomes["failed" if "failed" in kinds else "looped" if "looped" in kinds else "passed"] += 1
                for aspect, result in results.items():
                    if options.verbose and result != "passed":
                        print(f"{name}  {aspect}: {result}", flush=True)
    finally:
        server.stop()
    print(dict(outcomes))
    if options.save:
        text = json.dumps({"outcomes": dict(outcomes), "entries": dict(sorted(entries.items()))}, indent=1)
        (RESULTS / f"{options.save}.json").write_text(text + "\n")
    return int(outcomes["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
