"""Code of graphs whose inputs and results are trees: containers are taken apart before, and put together after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad.utils._pytree import TreeSpec, tree_leaves, tree_unflatten

from .codegen import CodeGen


class _PyTreeInfo(NamedTuple):
    """Names of a function's parameters, and what holds the leaves of its arguments and of its result."""

    orig_args: list[str]
    in_spec: TreeSpec
    out_spec: TreeSpec | None


class _PyTreeCodeGen(CodeGen):
    """Writes functions that take trees and return one."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return tree_leaves(inputs)

    def process_outputs(self, outputs: Any) -> Any:
        if self.pytree_info.out_spec is None:
            return outputs
        return tree_unflatten(outputs if isinstance(outputs, (list, tuple)) else [outputs], self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        names = self.pytree_info.orig_args
        if names and names[0] == "self":
            free_vars.insert(0, "self")
        first = super().gen_fn_def(list(names), maybe_return_annotation)
        return first + self._bindings(names, free_vars) if free_vars else first

    def _bindings(self, names: list[str], free_vars: list[str]) -> str:
        """Return the statement that names the leaves of the arguments, after their annotations."""
        typed = "".join([f"{name}; " for name in free_vars if ":" in name])
        leaves = ", ".join([name.split(":")[0].split("#")[0] for name in free_vars])
        annotations = f"\n    {typed}\n" if typed else ""
        return f"{annotations}\n    {leaves}, = fx_pytree.tree_flatten_spec({self._trees(names)}, self._in_spec)"

    def _trees(self, names: list[str]) -> str:
        """Return the expression of what ``in_spec`` takes apart."""
        return f"[{', '.join(names)}]"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] | None = None, **options: Any) -> str:
        if not self.pytree_info.out_spec:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({(repr_fn or repr)(output_args)}, self._out_spec)"


class CallCodeGen(_PyTreeCodeGen):
    """Writes functions whose ``in_spec`` is of a tuple of arguments and a dict of keywords, the last of the names."""

    def _trees(self, names: list[str]) -> str:
        keywords = self.pytree_info.in_spec.child(1).context
        named = ", ".join([f"{key!r}: {key}" for key in keywords])
        return f"([{', '.join(names[: len(names) - len(keywords)])}], {{{named}}})"
