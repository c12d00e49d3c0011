"""Which modules of an exported one are being called: PyTorch's nodes have it as ``nn_module_stack``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple


class ModuleCall(NamedTuple):
    """A call of a module: a name of its own, the module's path, and its class."""

    key: str
    path: str
    kind: str


class ModuleCallSignature(NamedTuple):
    """What a module takes and returns in the graph: its arguments and results, and the structures around them."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


class ModuleCallEntry(NamedTuple):
    """A module that a program has called, by its path; only the whole, which has none, has a signature."""

    fqn: str
    signature: ModuleCallSignature | None = None


Calls = tuple[ModuleCall, ...]
"""The calls that a step is in, the outermost first."""


class ModuleCalls:
    """The calls that are under way, in ``stack``."""

    def __init__(self) -> None:
        self.stack: Calls = ()
        self._counts: Counter[str] = Counter()

    @contextmanager
    def noted(self, module: Any) -> Iterator[None]:
        """Note calls of the module, and of those in it, in this block."""
        handles = []
        for path, part in module.named_modules():
            handles.append(part.register_forward_pre_hook(partial(self._begin, path), prepend=True))
            handles.append(part.register_forward_hook(self._end, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, path: str, module: Any, args: Any) -> None:
        again = f"@{self._counts[path]}" if self._counts[path] else ""
        self._counts[path] += 1
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        self.stack = (*self.stack, ModuleCall(f"L__self__{path}{again}", path, kind))

    def _end(self, module: Any, args: Any, result: Any) -> None:
        self.stack = self.stack[:-1]


def as_text(calls: Sequence[Calls]) -> str:
    """Return the calls of all steps as JSON."""
    numbers = {stack: number for number, stack in enumerate(dict.fromkeys(calls))}
    return json.dumps({"stacks": [*numbers], "steps": [numbers[stack] for stack in calls]})


def from_text(text: str | None, count: int) -> list[Calls] | None:
    """Return the calls of so many steps; None where there are none, or none that fit."""
    try:
        told = json.loads(text or "null")
        stacks = [tuple([ModuleCall(*map(str, call)) for call in stack]) for stack in told["stacks"]]
        calls = [stacks[number] for number in told["steps"]]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return calls if len(calls) == count else None
