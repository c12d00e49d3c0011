"""Graphs as Python functions: a line for each node, which forgets the values that nothing uses any more."""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, Final

from telegrad._library.overloads import OpOverload
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.meta import Device

from .._tracing.wrapping import wrap
from ..node import Node
from .names import Namespace, always_there
from .qualified_names import is_own, qualified_name, type_name
from .verbose_code import comment_of, type_of_result

reflectable_magic_methods: Final = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}",
    "div": "{} / {}", "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}",
    "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
"""Operators that have a form for a right operand that answers them, with how they are written."""
magic_methods: Final = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "pos": "+{}", "neg": "-{}", "invert": "~{}", **reflectable_magic_methods,
}  # fmt: skip
inplace_methods: Final = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}", "imod": "{} %= {}",
    "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}", "irshift": "{} >>= {}",
    "isub": "{} -= {}", "itruediv": "{} /= {}", "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip
_NODE: Final = re.compile(r"# COUNTER: (\d+)")
_OLDER_NAMES: Final[dict[Any, Any]] = {
    list: typing.List, dict: typing.Dict, set: typing.Set, frozenset: typing.FrozenSet, tuple: typing.Tuple,  # noqa: UP006
}  # fmt: skip


@dataclass
class PythonCode:
    """The text of a function and the globals that it needs, with the place of the node of each line."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


class CodeGen:
    """Writes the code of graphs; classes that derive from it change how inputs come and results are returned."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """Return the line that begins the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] | None = None, **_: Any) -> str:
        """Return the statement that returns the result."""
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """Return the inputs as the graph's placeholders take them."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Return what the graph gives as its function returns it."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Return more names that the code needs, with their values."""
        return []

    def _gen_python_code(
        self, nodes: Any, root_module: str, namespace: Namespace, *, verbose: bool = False, **options: Any
    ) -> PythonCode:
        return _Writer(self, list(nodes), root_module, namespace, verbose, options).write()


class _Writer:
    """What writes the Python code of one graph: its lines, and the objects that they name as globals."""

    def __init__(
        self, codegen: CodeGen, nodes: list[Node], root_module: str, namespace: Namespace, verbose: bool,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self._codegen, self._nodes, self._root, self._namespace = codegen, nodes, root_module, namespace
        self._verbose, self._options = verbose, options
        self._inputs: list[str] = []
        self._returned = ""
        self._globals: dict[str, Any] = {}
        self._wrapped: dict[str, None] = {}
        for name, entry in always_there().items():
            self._global(name, entry.obj)

    def write(self) -> PythonCode:
        """Return the source text of ``forward``, and the globals that it needs."""
        last_uses = self._last_uses()
        body: list[str] = []
        comment = None
        for place, node in enumerate(self._nodes):
            if self._verbose and node.op not in ("placeholder", "output"):
                before, comment = comment, comment_of(node)
                body += [comment] if comment != before else []
            body.append(f"# COUNTER: {place}\n")
            statement = self._statement(node)
            body += [statement] if statement else []
            if node.op != "placeholder":
                body.append(self._ending(node, last_uses.get(node, [])))
        body = body or ["pass\n"]
        if self._codegen._body_transformer:
            body = self._codegen._body_transformer(body)
        for name, value in self._codegen.additional_globals():
            self._global(name, value)
        return self._assembled(body)

    def _assembled(self, body: list[str]) -> PythonCode:
        wrapped = ""
        if self._wrapped:
            function = self._global("wrap", wrap)
            wrapped = "\n".join([f'{function}("{name}")' for name in self._wrapped])
        first = self._codegen.gen_fn_def(self._inputs, self._returned)
        lines: list[str] = []
        places: dict[int, int | None] = {}
        place = None
        for line in "".join(body).split("\n"):
            counter = _NODE.search(line)
            if counter is not None:
                place = int(counter.group(1))
            else:
                places[len(lines) + first.count("\n") + 1] = place
                lines.append(line)
        text = "\n".join([f"    {line}" for line in "\n".join(lines).lstrip("\n").split("\n")])
        return PythonCode(f"\n{wrapped}\n\n{first}\n{text}", self._globals, places, wrapped.count("\n") + 4)

    def _last_uses(self) -> dict[Node, list[Node]]:
        """Return for each node those whose results it is the last to use."""
        used: set[Node] = set()
        last: dict[Node, list[Node]] = {}
        for user in reversed(self._nodes):
            for node in user._input_nodes:
                if node not in used:
                    used.add(node)
                    last.setdefault(user, []).append(node)
        return last

    def _ending(self, node: Node, last_used: list[Node]) -> str:
        """Return what ends the line of a node: values that nothing needs any more are given up."""
        if node.op == "output":
            return "\n"
        given_up = [*last_used, *([] if node.users else [node])]
        return f";  {' = '.join([*map(repr, given_up), 'None'])}\n" if given_up else "\n"

    def _global(self, hint: str, obj: Any) -> str:
        """Return the name that code has for an object, which is put into the globals if it has none of telegrad's."""
        if is_own(obj) and obj is not Device:
            return qualified_name(obj)
        name = self._namespace.create_name(hint, obj)
        self._globals.setdefault(name, obj)
        return name

    def _statement(self, node: Node) -> str:
        """Return the statement of a node, without its end; an empty text for most placeholders."""
        target: Any = node.target
        typed = "" if node.type is None else f" : {self._type(node.type)}"
        typed = (type_of_result(node, self._options) if self._verbose else None) or typed
        if node.op == "placeholder":
            default = f" = {self._shown(node.args[0])}" if node.args else ""
            self._inputs.append(f"{target}{typed}{default}")
            name = target.replace("*", "")
            return f"{node!r} = {name}\n" if name != repr(node) else ""
        if node.op == "output":
            self._returned = "" if node.type is None else f" -> {self._type(node.type)}"
            return self._codegen.generate_output(node.args[0], repr_fn=self._shown)
        if node.op == "call_function":
            return self._function_call(node, target, typed)
        if node.op == "get_attr":
            return f"{node!r}{typed} = {_attribute(self._root, target)}"
        if node.op == "call_module":
            return f"{node!r}{typed} = {_attribute(self._root, target)}({self._arguments(node.args, node.kwargs)})"
        of, *rest = node.args
        return f"{node!r}{typed} = {_attribute(self._shown(of), target)}({self._arguments(rest, node.kwargs)})"

    def _function_call(self, node: Node, target: Any, typed: str) -> str:
        shown = [self._shown(argument) for argument in node.args]
        if getattr(target, "__module__", "") == "_operator":
            name = target.__name__
            if name in magic_methods:
                return f"{node!r}{typed} = {magic_methods[name].format(*shown)}"
            if name in inplace_methods:
                return f"{inplace_methods[name].format(*shown)};  {node!r}{typed} = {shown[0]}"
        function = self._global(qualified_name(target), target)
        if function == "getattr" and len(node.args) == 2 and str(node.args[1]).isidentifier():
            return f"{node!r}{typed} = {_attribute(shown[0], node.args[1])}"
        if node.meta.get("is_wrapped", False):
            self._wrapped.setdefault(function)
        return f"{node!r}{typed} = {function}({self._arguments(node.args, node.kwargs)})"

    def _arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        named = [f"{name} = {self._shown(value)}" for name, value in kwargs.items()]
        return ", ".join([*map(self._shown, args), *named])

    def _shown(self, value: Any) -> str:
        """Return the Python expression of a node's argument."""
        if isinstance(value, Node):
            return repr(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self._global(qualified_name(type(value)), type(value))}{tuple(value)!r}"
        if isinstance(value, OpOverload):
            return self._global(qualified_name(value), value)
        if isinstance(value, enum.Enum):
            return f"{self._global(type(value).__name__, type(value))}.{value.name}"
        if isinstance(value, Tensor):
            dtype = str(value.dtype).rpartition(".")[2]
            return f"{type_name(Tensor)}(size={list(value.shape)}, dtype={dtype})"
        if isinstance(value, tuple):
            return f"({', '.join(map(self._shown, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._shown, value))}]"
        if isinstance(value, slice):
            return f"slice({self._shown(value.start)}, {self._shown(value.stop)}, {self._shown(value.step)})"
        return repr(value)

    def _type(self, annotation: Any) -> str:
        """Return the Python expression of a type annotation."""
        if annotation == ():
            return "()"
        arguments = typing.get_args(annotation)
        if isinstance(annotation, types.UnionType):
            return "|".join(map(self._type, arguments))
        origin = getattr(annotation, "__origin__", None)
        if not origin:
            return self._global(type_name(annotation), annotation)
        if not isinstance(annotation, types.GenericAlias):
            origin = _OLDER_NAMES.get(origin, origin)
        name = self._global(type_name(origin), origin)
        return f"{name}[{','.join(map(self._type, arguments))}]" if arguments else name


def _attribute(base: str, path: str) -> str:
    """Return the text that reads an attribute, whose names may be none of Python's."""
    for name in path.split("."):
        is_name = name.isidentifier() and not iskeyword(name)
        base = f"{base}.{name}" if is_name else f"getattr({base}, {json.dumps(name, ensure_ascii=False)})"
    return base
