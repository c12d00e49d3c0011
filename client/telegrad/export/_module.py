"""A program as a module that can be called: it runs the steps by telegrad's operations, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any, NoReturn

from telegrad._dispatch.programs import called
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph import Graph
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.utils._pytree import TreeSpec, tree_flatten
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError
from telegrad_protocol.exported.arguments import Binder
from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import ProgramDescription
from telegrad_protocol.exported.sizes import Formula
from telegrad_protocol.exported.solving import sizes_of

from ._graph import graph_of
from ._printing import code_of
from ._trees import Place


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_same(value: Any, expected: Any) -> bool:
    """Whether an argument is the constant that a program was exported with: 2, 2.0 and True are three of them."""
    if type(value) is not type(expected):
        return False
    return bool(repr(value) == repr(expected) if isinstance(value, (float, complex)) else value == expected)


class GraphModule(Module):
    """A module that computes an exported program. It has the parameters and buffers of the program."""

    def __init__(
        self, program: ProgramDescription, tensors: Mapping[int, Tensor], arguments: tuple[TreeSpec, list[Any]],
        results: tuple[TreeSpec, list[Any]], names: Mapping[int, str], aliases: Mapping[str, str],
    ) -> None:  # fmt: skip
        super().__init__()
        self._program, self._arguments, self._results, self._value_names = program, arguments, results, names
        self._homes: dict[int, tuple[Module, str]] = {}
        self._constants: dict[int, Tensor] = {}
        for held in program.tensors:
            if held.kind == "constant":
                self._constants[held.value] = tensors[held.value]
                continue
            self._homes[held.value] = self._place(held.name, tensors[held.value], held.is_persistent)
        for path, first in aliases.items():
            of_first = next(held for held in program.tensors if held.name == first)
            self._place(path, tensors[of_first.value], of_first.is_persistent)

    def _place(self, path: str, tensor: Tensor, is_persistent: bool) -> tuple[Module, str]:
        *above, name = path.split(".")
        home: Module = self
        for part in above:
            if part not in home._modules:
                home.add_module(part, Module())
            home = home._modules[part]
        if isinstance(tensor, Parameter):
            home.register_parameter(name, tensor)
        else:
            home.register_buffer(name, tensor, persistent=is_persistent)
        return home, name

    @property
    def code(self) -> str:
        """The program as the text of a function."""
        return code_of(self._program, self._value_names)

    @cached_property
    def graph(self) -> Graph:
        """The program as a graph to be read: see ``ExportedProgram.graph``."""
        return graph_of(self._program, self._value_names, self._results[1])

    def print_readable(self, print_output: bool = True) -> str:
        """Print the program as the text of a function, and return it."""
        if print_output:
            print(self.code)
        return self.code

    def train(self, mode: bool = True) -> NoReturn:
        """Refuse: a program computes what its module did in the mode that it was exported in."""
        raise NotSupportedError(
            f"{'train' if mode else 'eval'}: a program computes what its module did in the mode in which it was "
            "exported; call train() or eval() of the module, and export it again"
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the program. Raises ShapeError and DTypeError for inputs that it does not take."""
        inputs = self._inputs(args, kwargs)
        shapes = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
        sizes = sizes_of(self._program, shapes)
        values: dict[int, Any] = {item.value: inputs[item.name] for item in self._program.inputs}
        for held in self._program.tensors:
            home = self._homes.get(held.value)
            own = self._constants[held.value] if home is None else getattr(*home)
            values[held.value] = own.clone() if home is None and held.is_written else own
        binder = Binder(values.__getitem__, _is_tensor)
        for step in self._program.steps:
            op = operation_of(step)
            with no_grad() if step.without_gradient else nullcontext():
                result = called(op, binder.bind(op, step.args, sizes))
            if step.outs:
                made = result if isinstance(result, (tuple, list)) else (result,)
                values.update(zip(step.outs, made, strict=True))
        return self._returned(values, sizes)

    def _returned(self, values: Mapping[int, Any], sizes: Mapping[str, int]) -> Any:
        structure, leaves = self._results
        outputs = self._program.outputs
        made = [
            values[outputs[leaf].value]
            if isinstance(leaf, Place)
            else leaf.value(sizes)
            if isinstance(leaf, Formula)
            else leaf
            for leaf in leaves
        ]
        return structure.unflatten(made)

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        structure, wanted = self._arguments
        given, actual = tree_flatten((args, kwargs))
        if actual != structure:
            given = self._in_order(args, kwargs, structure)
        inputs: dict[str, Tensor] = {}
        for leaf, expected in zip(given, wanted, strict=True):
            if not isinstance(expected, Place):
                if not _is_same(leaf, expected):
                    raise ArgumentError(f"the program was exported with {expected!r}, and is called with {leaf!r}")
                continue
            described = self._program.inputs[expected]
            if not isinstance(leaf, Tensor) or leaf.dtype is not BY_NAME[described.dtype]:
                shown = leaf._meta if isinstance(leaf, Tensor) else repr(leaf)
                raise DTypeError(f"input {described.name!r}: expected {described}, got {shown}")
            inputs[described.name] = leaf
        return inputs

    def _in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any], structure: TreeSpec) -> list[Any]:
        """Return the leaves of arguments whose keywords stand in another order than at the export."""
        wanted = structure.child(1).context
        if sorted(wanted) == sorted(kwargs):
            leaves, actual = tree_flatten((args, {name: kwargs[name] for name in wanted}))
            if actual == structure:
                return leaves
        raise ArgumentError(
            f"the program takes arguments of the structure {structure}; called with {tree_flatten((args, kwargs))[1]}"
        )
