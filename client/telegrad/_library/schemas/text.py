"""Reads schemas from text, such as ``scale(Tensor(a!) x, float by=1.0, *, int[]? dims=None) -> Tensor(a!)``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn

from telegrad_protocol import dtypes, memory_format
from telegrad_protocol.errors import OperatorError

from .types import AliasInfo, Argument, FunctionSchema, SchemaType

_TOKEN: Final = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|(?P<number>-?(?:(?<=-)inf|\d+\.?\d*(?:[eE][-+]?\d+)?j?)(?!\w))'
    r"|(?P<ident>[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*)|(?P<mark>->|\.\.\.|[()\[\],=?*!|:]))"
)
_PLAIN: Final = frozenset(
    [
        "Tensor",
        "SymInt",
        "SymBool",
        "SymFloat",
        "int",
        "float",
        "bool",
        "Scalar",
        "number",
        "complex",
        "str",
        "Device",
        "ScalarType",
        "Layout",
        "MemoryFormat",
        "Generator",
        "Storage",
        "Stream",
        "Dimname",
        "QScheme",
        "Any",
        "AnyEnumType",
        "ConstQuantizerPtr",
        "DeviceIndex",
        "NoneType",
    ]
)
_MOST_NESTED: Final = 64
"""Types of types, such as ``Tensor?[]``, end at so many steps."""
_NUMBERS: Final = frozenset(("int", "SymInt", "float", "SymFloat", "Scalar", "number", "complex", "DeviceIndex"))
_REDUCTIONS: Final = {"None": 0, "Mean": 1, "Sum": 2}
_UNKNOWN: Final = (
    "unknown type specifier. Common valid schema types include Tensor, SymInt, int, float, bool, Scalar; for a full "
    "list, please see https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md#func "
)


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _Reader:
    """Reads one schema from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._place = 0
        self._unnamed = 0

    def _split(self, text: str) -> Iterator[_Token]:
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None:
                raise OperatorError(f"unexpected character in a schema here:\n{text}\n{' ' * place}~ <--- HERE")
            kind = str(match.lastgroup)
            yield _Token(kind, match[kind], match.start(kind))
            place = match.end()
        yield _Token("eof", "eof", len(text))

    @property
    def next(self) -> _Token:
        """The token that is read next."""
        return self._tokens[self._place]

    def take(self) -> _Token:
        """Return the next token, and go on."""
        token = self.next
        self._place += token.kind != "eof"
        return token

    def takes(self, text: str) -> bool:
        """Go on if the next token is this mark; return whether it was."""
        is_next = self.next.kind != "text" and self.next.text == text
        self._place += is_next
        return is_next

    def expect(self, wanted: str) -> _Token:
        """Return the next token, which must be this mark, or of this kind."""
        token = self.take()
        if wanted not in (token.text, token.kind):
            self.fail(f"expected {wanted} but found '{token.kind if token.kind != 'mark' else token.text}' here", token)
        return token

    def fail(self, message: str, at: _Token) -> NoReturn:
        """Raise an error that shows the schema and a place in it."""
        pointer = "" if at.kind == "eof" else f"\n{' ' * at.start}{'~' * len(at.text)} <--- HERE"
        raise OperatorError(f"{message}:\n{self._text}{pointer}")

    def schema(self) -> FunctionSchema:
        name, dot, overload = self.expect("ident").text.partition(".")
        self.expect("(")
        arguments: list[Argument] = []
        is_vararg = is_keyword = False
        while not self.takes(")"):
            if self.takes("*"):
                is_keyword = True
            elif self.takes("..."):
                is_vararg = True
            else:
                start = self.next
                arguments.append(self._argument(is_keyword))
                self._check_order(arguments, start)
            if not self.takes(","):
                self.expect(")")
                break
        self.expect("->")
        returns, is_varret = self._results()
        self.expect("eof")
        return FunctionSchema(name, overload if dot else "", tuple(arguments), returns, is_vararg, is_varret)

    def _check_order(self, arguments: list[Argument], start: _Token) -> None:
        """Refuse a positional argument without a default behind one that has a default."""
        last = arguments[-1]
        if not last.has_default and not last.kwarg_only and any(one.has_default for one in arguments):
            self.fail(f"Non-default positional argument follows default argument. Parameter {last.name} here", start)

    def _results(self) -> tuple[tuple[Argument, ...], bool]:
        if self.takes("..."):
            return (), True
        if not self.takes("("):
            return (self._result(),), False
        results: list[Argument] = []
        is_varret = False
        while not self.takes(")"):
            if self.takes("..."):
                is_varret = True
            else:
                results.append(self._result())
            if not self.takes(","):
                self.expect(")")
                break
        return tuple(results), is_varret

    def _result(self) -> Argument:
        type, alias = self._type()
        name = self.take().text if self.next.kind == "ident" else ""
        return Argument(name, type, alias_info=alias)

    def _argument(self, is_keyword: bool) -> Argument:
        type, alias = self._type()
        name = self.expect("ident").text
        if not self.takes("="):
            return Argument(name, type, None, is_keyword, alias)
        start = self.next
        value = self._value(type)
        if value is None and type.kind != "optional" and start.text != "None":
            self.fail("expected a default of the argument's type here", start)
        return Argument(name, type, value, is_keyword, alias, True, default_text(value, type, start.text))

    def _type(self) -> tuple[SchemaType, AliasInfo | None]:
        token = self.take()
        if token.text == "(":  # a tuple of types, which only results of loops have
            inner = [self._type()[0].text]
            while self.takes(","):
                inner.append(self._type()[0].text)
            self.expect(")")
            type = SchemaType(f"({', '.join(inner)})")
        elif token.kind != "ident":
            self.fail(f"expected a type but found '{token.text}' here", token)
        else:
            type = SchemaType(token.text + self._parameters(token))
        alias = self._alias()
        for _ in range(_MOST_NESTED):
            if self.takes("?"):
                type = SchemaType("optional", type)
            elif self.takes("["):
                size = int(self.take().text) if self.next.kind == "number" else None
                self.expect("]")
                type = SchemaType("list", type, size)
            elif behind := self._alias(is_behind_optional=type.kind == "optional"):
                alias = replace(behind, is_of_list=True)
            else:
                return type, alias
        self.fail("a type nests too deeply here", token)

    def _parameters(self, token: _Token) -> str:
        """Return the parameters of a type such as ``Dict(str, Tensor)``; raise an error for an unknown type."""
        name = token.text
        if name in ("Dict", "Future", "RRef", "Await", "Union", "Tuple"):
            self.expect("(")
            inner = [self._type()[0].text]
            while self.takes(","):
                inner.append(self._type()[0].text)
            self.expect(")")
            return f"({', '.join(inner)})"
        if name not in _PLAIN and not re.fullmatch(r"t\w*|__torch__\..*", name):
            self.fail(_UNKNOWN, token)
        return ""

    def _alias(self, is_behind_optional: bool = False) -> AliasInfo | None:
        """Return what is written next of memory: ``(a!)``, or ``!`` for memory without a letter; or nothing."""
        if self.next.text == "(":
            return self._letters()
        if is_behind_optional or not self.takes("!"):
            return None
        self._unnamed += 1
        return AliasInfo(frozenset([f"${self._unnamed - 1}"]), frozenset(), True)

    def _letters(self) -> AliasInfo:
        self.expect("(")
        if self.next.text == "!":
            self.fail("expected ident but found '!' here", self.next)
        before, after, is_write = set[str](), set[str](), False
        letters = before
        while not self.takes(")"):
            if self.takes("!"):
                is_write = True
            elif self.takes("->"):
                letters = after
            elif not self.takes("|"):
                token = self.take()
                if token.kind != "ident" and token.text != "*":
                    self.fail(f"expected a name of aliases but found '{token.text}' here", token)
                letters.add(token.text)
        return AliasInfo(frozenset(before), frozenset(after or before), is_write)

    def _value(self, type: SchemaType) -> Any:
        """Return the default that is written next, as the value that a kernel gets."""
        inner = type.element
        if type.kind == "optional" and inner is not None:
            return None if self.takes("None") else self._value(inner)
        if type.kind == "list" and inner is not None:
            if not self.takes("["):
                if type.size is None:
                    self.fail(f"expected [ but found '{self.next.kind}' here", self.next)
                value = self._value(inner)
                return [value] * (type.size or 1)
            values = []
            while not self.takes("]"):
                values.append(self._value(inner))
                if not self.takes(","):
                    self.expect("]")
                    break
            return values
        token = self.take()
        if token.kind == "text":
            return token.text[1:-1]
        if token.kind == "number" or token.text in ("inf", "nan"):
            return self._number(token, type)
        if token.text in ("True", "False"):
            return token.text == "True"
        return self._named(token, type)

    def _number(self, token: _Token, type: SchemaType) -> Any:
        if type.kind not in _NUMBERS and type.kind not in ("ScalarType", "Layout", "MemoryFormat", "bool"):
            self.fail("expected None but found 'number' here", token)
        if type.kind in ("float", "SymFloat"):
            return float(token.text)
        try:
            return int(token.text)
        except ValueError:
            return complex(token.text) if token.text.endswith("j") else float(token.text)

    def _named(self, token: _Token, type: SchemaType) -> Any:
        if type.kind in ("int", "SymInt") and token.text in _REDUCTIONS:
            return _REDUCTIONS[token.text]
        if token.text == "None":
            return None
        name = _ALIASES.get(token.text, token.text)
        return getattr(dtypes, name, None) or getattr(memory_format, name, token.text)


_ALIASES: Final = {
    "long": "int64", "int": "int32", "float": "float32", "double": "float64", "short": "int16", "half": "float16",
}  # fmt: skip


def default_text(value: Any, type: SchemaType, written: str) -> str:
    """Return a default as PyTorch writes it."""
    if value is None:
        return "None"
    if isinstance(value, list):
        inner = type.element if type.kind == "list" else type.element and type.element.element
        is_spread = inner is not None and inner.kind == "int" and type.size == len(value) > 1 and len(set(value)) == 1
        if is_spread:
            return str(value[0])
        return f"[{', '.join([default_text(item, inner or type, str(item)) for item in value])}]"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        text = f"{value:.17g}"
        return text if math.isinf(value) or math.isnan(value) or "." in text or "e" in text else f"{text}."
    return f'"{value}"' if isinstance(value, str) and written[:1] in "\"'" else written


def parse_schema(text: str) -> FunctionSchema:
    """Return the schema that a text describes. Raises OperatorError, which shows the place, where it describes none."""
    try:
        return _Reader(text).schema()
    except RecursionError:
        raise OperatorError(f"a schema nests types too deeply: {text[:60]}...") from None
