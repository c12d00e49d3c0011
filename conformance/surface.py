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
from typing import Any, Final, NamedTuple

import torch

import telegrad
from benchmarks.measure import RESULTS

from .scope import reason

NAMESPACES: Final = (
    "", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize",
    "nn.utils.parametrizations", "nn.utils.prune", "optim", "optim.lr_scheduler", "optim.swa_utils", "autograd",
    "autograd.functional", "autograd.graph", "autograd.forward_ad", "linalg", "fft", "special", "signal.windows",
    "distributions", "utils.data", "utils.checkpoint", "func", "cuda", "amp", "random", "export",
    "nested",
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
        return _unlike([*own.parameters], theirs)
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
    shown = str(getattr(default, "__name__", default)).rpartition(".")[2] if callable(default) else str(default)
    return _ADDRESS.sub("", shown.replace("telegrad.", "torch."))  # a type or a size


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Form(NamedTuple):
    """One way to call a function: names in order, and names that are taken by keyword only, in any order."""

    positional: tuple[str, ...]
    by_keyword: frozenset[str]


def _documented_forms(function: Any) -> list[Form]:
    """The signatures in a docstring: the one that it begins with, and those of further forms below."""
    text = getattr(function, "__doc__", None) or ""
    begin = rf"^\s*(?:\.\. function:: )?(?:torch\.)?(?:[\w.]+\.)?{function.__name__}"
    found = re.findall(begin + r"\((.*?)\)(?: ->.*)?$", text, re.MULTILINE)
    return [_form(signature) for signature in found]


def _form(signature: str) -> Form:
    parts = re.sub(r"\[[^]]*\]|\(.*?\)|\\", "", signature).split(",")
    names = [re.split("[:=]", part)[0].strip() for part in parts]
    at = names.index("*") if "*" in names else len(names)
    ordered = [name.lstrip("*") for name in names[:at]]
    return Form(
        tuple([name for name in ordered if name.isidentifier()]), frozenset(filter(str.isidentifier, names[at + 1 :]))
    )


def _real_forms(function: Any) -> list[Form]:
    """The signatures that PyTorch's dispatcher has under a function's name, which is what its parser takes."""
    forms = []
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{function.__name__}"):
        ordered = ["input" if a.name == "self" else a.name for a in schema.arguments if not a.kwarg_only]
        forms.append(Form(tuple(ordered), frozenset([a.name for a in schema.arguments if a.kwarg_only])))
    return forms


def _unlike(mine: list[str], function: Any) -> str:
    """How names differ from every form that PyTorch documents, and from every one that it takes; empty for none."""
    own = [name for name in mine if name != "self"]
    documented = _documented_forms(function)
    forms = [*documented, *_real_forms(function)]
    if not any(map(any, documented)) or any(_fits(own, form) for form in forms):
        return ""
    names = [*documented[0].positional, *sorted(documented[0].by_keyword)]
    return f"({', '.join(own)}) for ({', '.join(names)})"


def _fits(own: list[str], form: Form) -> bool:
    for ordered in {form.positional, tuple([name for name in form.positional if name != "input"])}:
        if tuple(own[: len(ordered)]) == ordered and form.by_keyword <= {*own}:
            return True
    return False


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
