"""Which of PyTorch's documented names telegrad has, with which signatures: ``make surface``.

A name is documented where it is public and has a docstring of its own. Of Python functions and classes the parameters
are compared: names, order, kinds and defaults. PyTorch's compiled functions show none; of those, the names and their
order are compared with the signature that their docstrings begin with.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import torch

import telegrad
from benchmarks.measure import RESULTS

from .scope import reason

NAMESPACES: Final = (
    "", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize",
    "nn.utils.parametrizations", "nn.utils.prune", "optim", "optim.lr_scheduler", "optim.swa_utils", "autograd",
    "autograd.functional", "autograd.graph", "autograd.forward_ad", "linalg", "fft", "special", "signal.windows",
    "distributions", "utils.data", "utils.checkpoint", "func", "cuda", "amp", "random",
)  # fmt: skip
WHOLE: Final = frozenset(("nn", "nn.functional", "optim", "optim.lr_scheduler", "linalg", "fft", "special"))
"""Namespaces of which nothing may be missing."""


@dataclass
class Coverage:
    """What one namespace has: counts, and the names that are missing or whose parameters differ."""

    namespace: str
    documented: int = 0
    present: int = 0
    missing: list[str] = field(default_factory=list)
    different: dict[str, str] = field(default_factory=dict)
    out_of_scope: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        return self.present / max(self.documented, 1)

    @property
    def goal(self) -> float:
        return 1.0 if self.namespace in WHOLE else 0.95


def coverage(namespace: str) -> Coverage:
    """Compare one namespace."""
    theirs, ours = _object(torch, namespace), _object(telegrad, namespace)
    result = Coverage(namespace)
    for name in sorted(_documented(theirs)):
        why = reason(name)
        if why:
            result.out_of_scope[name] = why
            continue
        result.documented += 1
        if not hasattr(ours, name):
            result.missing.append(name)
            continue
        result.present += 1
        difference = _difference(getattr(theirs, name), getattr(ours, name))
        if difference:
            result.different[name] = difference
    return result


def _object(root: Any, dotted: str) -> Any:
    """The module or class of a dotted name below ``root``; None if there is none."""
    value = root
    for part in filter(None, dotted.split(".")):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = import_module(f"{value.__name__}.{part}")
            except ImportError:
                return None
    return value


def _documented(owner: Any) -> Iterator[str]:
    for name in dir(owner):
        value = getattr(owner, name)
        home = getattr(value, "__module__", None) or "torch"
        is_public = not name.startswith("_") and callable(value) and not isinstance(value, ModuleType)
        if is_public and home.startswith("torch") and getattr(value, "__doc__", None):
            yield name


def _difference(theirs: Any, ours: Any) -> str:
    """How the parameters of ours differ; empty if they do not, or where PyTorch shows none."""
    own = _signature(ours)
    reference = _signature(theirs)
    if own is None:
        return ""
    if reference is None:
        return _unlike([*own.parameters], _documented_parameters(theirs))
    mine, others = _shown(own), _shown(reference)
    return "" if mine == others else f"({', '.join(mine)}) for ({', '.join(others)})"


def _signature(described: Any) -> inspect.Signature | None:
    """The signature of a callable; None where it has none, or one that takes anything."""
    try:
        signature = inspect.signature(described)
    except (TypeError, ValueError):
        return None
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return None if kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD] else signature


def _shown(signature: inspect.Signature) -> list[str]:
    """Parameters without types, as they are compared; device and dtype objects by name."""
    shown = []
    for parameter in signature.parameters.values():
        default = "" if parameter.default is inspect.Parameter.empty else f"={_value(parameter.default)}"
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        shown.append(f"{stars}{parameter.name}{default}")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in shown:
            shown.insert(-1, "*")
    return shown


def _value(default: Any) -> str:
    if isinstance(default, ModuleType):
        return default.__name__
    if isinstance(default, float) and default.is_integer():
        return str(int(default))
    return str(getattr(default, "__name__", default)).rpartition(".")[2] if callable(default) else str(default)


def _documented_parameters(function: Any) -> list[str]:
    """The names in the signature at the top of a docstring; none where it does not begin with one."""
    text = getattr(function, "__doc__", None) or ""
    match = re.match(rf"\s*(?:torch\.)?(?:[\w.]+\.)?{function.__name__}\((.*?)\)(?: ->.*)?$", text, re.MULTILINE)
    parts = re.sub(r"\[[^]]*\]|\(.*?\)|\\", "", match[1]).split(",") if match else []
    names = (re.split("[:=]", part)[0].strip().lstrip("*") for part in parts)
    return [name for name in names if name.isidentifier()]


def _unlike(mine: list[str], documented: list[str]) -> str:
    """Compare names as far as PyTorch's docstring goes."""
    own = [name for name in mine if name != "self"]
    is_same = own[: len(documented)] == documented or not documented
    return "" if is_same else f"({', '.join(own)}) for ({', '.join(documented)})"


def main() -> int:
    """Print the table; 1 if a namespace has less than its goal."""
    parser = argparse.ArgumentParser(prog="python -m conformance.surface", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="list what is missing or differs")
    parser.add_argument("--only", default=None, help="one namespace, such as nn.functional; torch for the top")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/surface.json")
    options = parser.parse_args()
    chosen = NAMESPACES if options.only is None else ("" if options.only == "torch" else options.only,)
    results = [coverage(namespace) for namespace in chosen]
    for result in results:
        verdict = "met" if result.share >= result.goal else "MISSED"
        print(f"{result.namespace or 'torch':<28} {result.present:>4} of {result.documented:<4} {result.share:>6.1%}"
              f"  {len(result.different):>3} differ  {verdict}")  # fmt: skip
        if options.verbose:
            print("   missing:", " ".join(result.missing))
            for name, difference in result.different.items():
                print(f"   {name}: {difference}")
    if options.save:
        _save(results)
    return int(any(result.share < result.goal for result in results))


def _save(results: list[Coverage]) -> None:
    about = {"torch": torch.__version__.partition("+")[0], "namespaces": [asdict(result) for result in results]}
    (RESULTS / "surface.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
