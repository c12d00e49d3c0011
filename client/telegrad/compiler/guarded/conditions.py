"""What a call of a function has read, as conditions that are checked before its Python is left out.

The conditions become the text of one function, since there are hundreds of a large model: each is then a look-up and a
comparison by identity. Knows nothing of how they were found.
"""

from __future__ import annotations

from abc import get_cache_token
from collections.abc import Callable, Sequence
from operator import is_, itemgetter
from types import FunctionType, MethodType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor

_BY_VALUE: Final = frozenset((int, float, complex, str, bytes))
_WITH_SIGNS: Final = frozenset((float, complex))
"""Classes with zeros that are equal and differ."""
ABSENT: Final = object()
"""What stands for an entry that there is none of."""


def is_own_module(name: str) -> bool:
    """Whether a module is telegrad's own, going by its name, which may be the one that is shown as PyTorch's."""
    return name.partition(".")[0] in ("telegrad", "torch")


def _function_of(value: Any) -> Any:
    """Return the function of a bound method, which is another object each time, and other values as they are."""
    return value.__func__ if value.__class__ is MethodType else value


def _owner_of(value: Any) -> Any:
    """Return what a bound method belongs to, and None for other values."""
    return value.__self__ if value.__class__ is MethodType else None


def _content_of(container: Any) -> tuple[Any, ...]:
    """Return what a list, set or dict holds, in its order; of a dict the keys and then the values."""
    return (*container, *container.values()) if isinstance(container, dict) else tuple(container)


def _has_content(container: Any, expected: tuple[Any, ...]) -> bool:
    """Whether a list, set or dict holds these objects and no others."""
    content = _content_of(container)
    return len(content) == len(expected) and all([a is b or _is_same(a, b) for a, b in zip(content, expected)])


def _is_same(value: Any, other: Any) -> bool:
    """Whether two constants are the same for every operation; zeros have signs."""
    return (
        value.__class__ is other.__class__ in _BY_VALUE
        and value == other
        and (value.__class__ not in _WITH_SIGNS or repr(value) == repr(other))
    )


class Conditions:
    """Collects conditions. Those that were noted before are not noted again."""

    def __init__(self) -> None:
        self._known: set[tuple[Any, ...]] = set()
        self._texts: list[str] = []
        self._names: dict[int, str] = {}
        self._globals: dict[str, Any] = {
            "absent": ABSENT, "cache_token": get_cache_token, "function_of": _function_of,
            "has_content": _has_content, "is_": is_, "is_same": _is_same, "owner_of": _owner_of,
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self._texts)

    def _name(self, value: Any) -> str:
        """Return the name that the text has for an object, which is kept."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"v{len(self._names)}"
            self._globals[name] = value
        return name

    def _is_new(self, *key: Any) -> bool:
        if key in self._known:
            return False
        self._known.add(key)
        return True

    def _add(self, read: str, value: Any) -> None:
        """Note that an expression is to give a value: the same object, or for constants an equal one."""
        name = self._name(value)
        if value.__class__ in _BY_VALUE:
            self._texts.append(f"((x := {read}) is {name} or is_same(x, {name}))")
        else:
            self._texts.append(f"{read} is {name}")

    def entry(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        """Note that a dict has this value for a key."""
        if self._is_new("entry", id(entries), key, key.__class__):
            self._add(f"{self._name(entries)}.get({self._name(key)}, absent)", value)

    def no_entry(self, entries: dict[Any, Any], key: Any) -> None:
        """Note that a dict has no such key."""
        if self._is_new("no_entry", id(entries), key):
            self._texts.append(f"{self._name(key)} not in {self._name(entries)}")

    def element(self, elements: list[Any], place: int, value: Any) -> None:
        """Note that a list has this value at a place, counted from its begin or its end."""
        if self._is_new("element", id(elements), place):
            self._texts.append(f"len({self._name(elements)}) > {place if place >= 0 else -place - 1}")
            self._add(f"{self._name(elements)}[{place}]", value)

    def content(self, container: Any) -> None:
        """Note that a list, set or dict holds what it holds now, in this order."""
        if not self._is_new("content", id(container)):
            return
        name = self._name(container)
        if not container:
            self._texts.append(f"not {name}")
            return
        parts = (tuple(container), tuple(container.values())) if isinstance(container, dict) else (tuple(container),)
        reads = [name, f"{name}.values()"]
        same = " and ".join([f"all(map(is_, {read}, {self._name(part)}))" for read, part in zip(reads, parts)])
        # Most often all are the same objects; the function looks for constants that are equal.
        is_same = f"len({name}) == {len(container)} and {same}"
        self._texts.append(f"({is_same} or has_content({name}, {self._name(_content_of(container))}))")

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Note that ``owner.name`` is this value; methods are compared by function and by what they belong to."""
        if not self._is_new("attribute", id(owner), name):
            return
        read = f"getattr({self._name(owner)}, {name!r}, absent)"
        if isinstance(value, MethodType):
            self._texts.append(f"function_of({read}) is {self._name(value.__func__)}")
            self._texts.append(f"owner_of({read}) is {self._name(value.__self__)}")
        else:
            self._add(read, value)

    def kind(self, owner: Any) -> None:
        """Note that an object has the class and the dict of attributes that it has now: programs may give it others."""
        if self._is_new("kind", id(owner)):
            self._texts.append(f"{self._name(owner)}.__class__ is {self._name(owner.__class__)}")
            attributes = getattr(owner, "__dict__", None)
            if isinstance(attributes, dict):  # which that of a class is not
                self._texts.append(f"{self._name(owner)}.__dict__ is {self._name(attributes)}")
            self._parents(type(owner))

    def _parents(self, kind: type) -> None:
        """Note which parents a class has, and the names in each of them."""
        if self._is_new("parents", id(kind)):
            self._texts.append(f"{self._name(kind)}.__mro__ is {self._name(kind.__mro__)}")
            for one in kind.__mro__[:-1]:
                self._members(one)

    def _members(self, kind: type) -> None:
        """Note which names a class has, of telegrad's own how many: another may be a property, or an operator."""
        if not self._is_new("members", id(kind)):
            return
        members = vars(kind)
        if is_own_module(kind.__module__):
            self._texts.append(f"len({self._name(members)}) == {len(members)}")
        else:
            self._texts.append(f"(*{self._name(members)},) == {self._name((*members,))}")

    def operators(self, kind: type, names: Sequence[str]) -> None:
        """Note what answers operators on tensors of a class; ``names`` are those of ``Tensor`` itself."""
        if self._is_new("operators", id(kind)):
            if kind is not Tensor:
                self._parents(kind)
            if self._is_new("operators of Tensor"):
                read, methods = self._name(itemgetter(*names)), vars(Tensor)
                self._texts.append(f"{read}({self._name(methods)}) == {self._name(itemgetter(*names)(methods))}")

    def registered_classes(self) -> None:
        """Note that no class is registered as a virtual subclass of another one meanwhile."""
        if self._is_new("registered"):
            self._texts.append(f"cache_token() == {get_cache_token()}")

    def cell(self, cell: Any, value: Any) -> None:
        """Note that a variable of an enclosing function has this value."""
        if self._is_new("cell", id(cell)):
            self._add(f"{self._name(cell)}.cell_contents", value)

    def code(self, function: FunctionType) -> None:
        """Note what a function consists of: programs may replace it."""
        if self._is_new("code", id(function)):
            name = self._name(function)
            self._texts.append(f"{name}.__code__ is {self._name(function.__code__)}")
            self._texts.append(f"{name}.__defaults__ is {self._name(function.__defaults__)}")
            self._texts.append(f"{name}.__kwdefaults__ is {self._name(function.__kwdefaults__)}")
            if function.__kwdefaults__:
                self.content(function.__kwdefaults__)

    def tensor(self, tensor: Any) -> None:
        """Note how a tensor lies and whether it requires a gradient."""
        if self._is_new("tensor", id(tensor)):
            name = self._name(tensor)
            self._texts.append(f"{name}._meta is {self._name(tensor._meta)}")
            self._texts.append(f"{name}._requires_grad is {tensor._requires_grad}")
            self._texts.append(f"{name}._is_inference is {tensor._is_inference}")
            self._texts.append(f"({name}._aliases is None or {name}._aliases.version == {name}._seen)")

    def check(self) -> Callable[[], bool]:
        """Return a function that tells whether all of them hold."""
        body = "\n".join([f"    if not ({text}): return False" for text in self._texts])
        code = compile(f"def check():\n{body}\n    return True\n", "<conditions of a compiled function>", "exec")
        made: dict[str, Any] = self._globals
        exec(code, made)  # noqa: S102  the text consists of the lines above and of names that are counted here
        return made.pop("check")  # type: ignore[no-any-return]  # else both would keep each other alive
