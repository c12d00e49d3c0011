"""What a call of a function has read, as conditions that are checked before its Python is left out.

The conditions become the text of one function, since there are hundreds of a large model: each is then a look-up and a
comparison by identity. Where there is a compiler, C looks first whether all of them hold (``_native/conditions.h``).
Knows nothing of how they were found.
"""

from __future__ import annotations

from abc import get_cache_token
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import is_, itemgetter
from types import FunctionType, MethodType
from typing import Any, Final

from telegrad._native import ABSENT
from telegrad._native.binding import hold
from telegrad._tensor.tensor import Tensor

from .native_rows import NativeRows, is_plain_key, is_plain_object

_BY_VALUE: Final = frozenset((int, float, complex, str, bytes))
_WITH_SIGNS: Final = frozenset((float, complex))
"""Classes with zeros that are equal and differ."""


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
        self._others: list[str] = []
        """Those of the texts that C knows no kind of."""
        self._rows = NativeRows()
        """What the others are about."""
        self._names: dict[int, str] = {}
        self._globals: dict[str, Any] = {
            "absent": ABSENT, "cache_token": get_cache_token, "function_of": _function_of,
            "has_content": _has_content, "is_": is_, "is_same": _is_same, "owner_of": _owner_of,
        }  # fmt: skip

        self._changed: dict[int, Any] = {}
        self.reads_changes = False
        """Whether something was read that the call itself has changed: no condition tells what is there before it."""

    def __len__(self) -> int:
        return len(self._texts)

    def note_changes(self, changed: Iterable[Any]) -> None:
        """Note that the call has changed these dicts and lists."""
        self._changed.update({id(one): one for one in changed})

    def note_reading(self, container: Any) -> None:
        """Note that something of a dict or list is read."""
        self.reads_changes = self.reads_changes or id(container) in self._changed

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

    def _note(self, *texts: str, has_row: bool = False) -> None:
        """Note texts that are to be true; for some of them there is a row, too."""
        self._texts += texts
        if not has_row:
            self._others += texts

    def _gives(self, read: str, value: Any) -> str:
        """Return the text that an expression gives a value: the same object, or for constants an equal one."""
        name = self._name(value)
        is_constant = value.__class__ in _BY_VALUE
        return f"((x := {read}) is {name} or is_same(x, {name}))" if is_constant else f"{read} is {name}"

    def entry(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        """Note that a dict has this value for a key."""
        self.note_reading(entries)
        if self._is_new("entry", id(entries), key, key.__class__):
            text = self._gives(f"{self._name(entries)}.get({self._name(key)}, absent)", value)
            self._note_entry(text, entries, key, value)

    def no_entry(self, entries: dict[Any, Any], key: Any) -> None:
        """Note that a dict has no such key."""
        self.note_reading(entries)
        if self._is_new("no_entry", id(entries), key):
            self._note_entry(f"{self._name(key)} not in {self._name(entries)}", entries, key, ABSENT)

    def _note_entry(self, text: str, entries: dict[Any, Any], key: Any, value: Any) -> None:
        has_row = is_plain_key(entries, key)
        self._note(text, has_row=has_row)
        if has_row:
            self._rows.add_entry(entries, key, value)

    def element(self, elements: list[Any], place: int, value: Any) -> None:
        """Note that a list has this value at a place, counted from its begin or its end."""
        self.note_reading(elements)
        if self._is_new("element", id(elements), place):
            name, has_row = self._name(elements), elements.__class__ is list
            self._note(f"len({name}) > {place if place >= 0 else -place - 1}", has_row=has_row)
            self._note(self._gives(f"{name}[{place}]", value), has_row=has_row)
            if has_row:
                self._rows.add("element", elements, place, value)

    def content(self, container: Any) -> None:
        """Note that a list, set or dict holds what it holds now, in this order."""
        self.note_reading(container)
        if not self._is_new("content", id(container)):
            return
        name, keys = self._name(container), tuple(container)
        values = tuple(container.values()) if isinstance(container, dict) else None
        has_row = self._rows.add_content(container)
        if not container:
            self._note(f"not {name}", has_row=has_row)
            return
        parts = (keys,) if values is None else (keys, values)
        reads = [name, f"{name}.values()"]
        same = " and ".join([f"all(map(is_, {read}, {self._name(part)}))" for read, part in zip(reads, parts)])
        # Most often all are the same objects; the function looks for constants that are equal.
        is_same = f"len({name}) == {len(container)} and {same}"
        self._note(f"({is_same} or has_content({name}, {self._name(_content_of(container))}))", has_row=has_row)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Note that ``owner.name`` is this value; methods are compared by function and by what they belong to."""
        if self._changed:
            self.note_reading(getattr(owner, "__dict__", None))
        if not self._is_new("attribute", id(owner), name):
            return
        read = f"getattr({self._name(owner)}, {name!r}, absent)"
        if isinstance(value, MethodType):
            function, belongs_to = value.__func__, value.__self__
            texts = f"function_of({read}) is {self._name(function)}", f"owner_of({read}) is {self._name(belongs_to)}"
            self._note(*texts, has_row=True)
            self._rows.add("attribute", owner, name, function, belongs_to)
        else:
            self._note(self._gives(read, value), has_row=value is not ABSENT)
            if value is not ABSENT:
                self._rows.add("attribute", owner, name, value, ABSENT)

    def kind(self, owner: Any) -> None:
        """Note that an object has the class and the dict of attributes that it has now: programs may give it others."""
        if self._is_new("kind", id(owner)):
            name, has_row = self._name(owner), is_plain_object(owner)
            self._note(f"{name}.__class__ is {self._name(owner.__class__)}", has_row=has_row)
            attributes = getattr(owner, "__dict__", None)
            has_dict = isinstance(attributes, dict)  # which that of a class is not
            if has_dict:
                self._note(f"{name}.__dict__ is {self._name(attributes)}", has_row=has_row)
            if has_row:
                self._rows.add("kind", owner, type(owner), attributes if has_dict else None)
            self._parents(type(owner))

    def _parents(self, kind: type) -> None:
        """Note which parents a class has, and the names in each of them."""
        if self._is_new("parents", id(kind)):
            self._note(f"{self._name(kind)}.__mro__ is {self._name(kind.__mro__)}", has_row=True)
            self._rows.add("parents", kind, kind.__mro__)
            for one in kind.__mro__[:-1]:
                self._members(one)

    def _members(self, kind: type) -> None:
        """Note which names a class has, of telegrad's own how many: another may be a property, or an operator."""
        if not self._is_new("members", id(kind)):
            return
        members: Any = vars(kind)
        if is_own_module(kind.__module__):
            self._note(f"len({self._name(members)}) == {len(members)}", has_row=True)
            self._rows.add("members", members, len(members))
        else:
            names = (*members,)
            self._note(f"(*{self._name(members)},) == {self._name(names)}", has_row=True)
            self._rows.add("members", members, names)

    def operators(self, kind: type, names: Sequence[str]) -> None:
        """Note what answers operators on tensors of a class; ``names`` are those of ``Tensor`` itself."""
        if self._is_new("operators", id(kind)):
            if kind is not Tensor:
                self._parents(kind)
            if self._is_new("operators of Tensor"):
                read, methods = self._name(itemgetter(*names)), vars(Tensor)
                has_row = self._rows.add_methods(methods, names)
                expected = self._name(itemgetter(*names)(methods))
                self._note(f"{read}({self._name(methods)}) == {expected}", has_row=has_row)

    def registered_classes(self) -> None:
        """Note that no class is registered as a virtual subclass of another one meanwhile."""
        if self._is_new("registered"):
            self._note(f"cache_token() == {get_cache_token()}")

    def cell(self, cell: Any, value: Any) -> None:
        """Note that a variable of an enclosing function has this value."""
        if self._is_new("cell", id(cell)):
            self._note(self._gives(f"{self._name(cell)}.cell_contents", value), has_row=True)
            self._rows.add("cell", cell, value)

    def code(self, function: FunctionType) -> None:
        """Note what a function consists of: programs may replace it."""
        if self._is_new("code", id(function)):
            name = self._name(function)
            parts = {part: getattr(function, part) for part in ("__code__", "__defaults__", "__kwdefaults__")}
            self._note(*[f"{name}.{part} is {self._name(value)}" for part, value in parts.items()], has_row=True)
            self._rows.add("code", function, *parts.values())
            if function.__kwdefaults__:
                self.content(function.__kwdefaults__)

    def tensor(self, tensor: Any) -> None:
        """Note how a tensor lies and whether it requires a gradient."""
        if self._is_new("tensor", id(tensor)):
            name, meta = self._name(tensor), tensor._meta
            requires_grad, is_inference = tensor._requires_grad, tensor._is_inference
            self._note(
                f"{name}._meta is {self._name(meta)}",
                f"{name}._requires_grad is {requires_grad}",
                f"{name}._is_inference is {is_inference}",
                f"({name}._aliases is None or {name}._aliases.version == {name}._seen)",
                has_row=True,
            )
            self._rows.add("tensor", tensor, meta, requires_grad, is_inference)

    def check(self) -> Callable[[], bool]:
        """Return a function that tells whether all of them hold; Python has the last word where C does not say so."""
        if hold is None:
            return self.whole()
        rows, whole = self._rows.check(hold), cache(self.whole)  # its text is compiled when it is needed
        if not self._others:
            return lambda: rows() or whole()()
        others = self._function(self._others)
        return lambda: (rows() and others()) or whole()()

    def whole(self) -> Callable[[], bool]:
        """Return a function of Python that tells whether all of them hold."""
        return self._function(self._texts)

    def _function(self, texts: Sequence[str]) -> Callable[[], bool]:
        """Return a function that tells whether some of them hold."""
        body = "\n".join([f"    if not ({text}): return False" for text in texts])
        code = compile(f"def check():\n{body}\n    return True\n", "<conditions of a compiled function>", "exec")
        made: dict[str, Any] = dict(self._globals)
        exec(code, made)  # noqa: S102  the text consists of the lines above and of names that are counted here
        return made.pop("check")  # type: ignore[no-any-return]  # else both would keep each other alive
