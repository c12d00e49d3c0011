"""The lookup of what executes a call: one function for calls from the wire and for calls within the engine.

The classes of the arguments say how they are read, so there is a lookup per operation and classes. It makes a cache key
of all that decides how the call is executed: the dispatch keys of its tensors under the current modes, the default
dtype, the tensors' metas, and everything else by its value. Equal keys lead to the same run. Whatever cannot be read
goes to ``uncached``, which knows what is wrong with it. Knows nothing of kernels, plans or sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from telegrad_protocol import dtypes

from . import context
from .in_c.signatures import new_lookup
from .operators import CacheKey, Operator
from .signature import number_identity

Decode: TypeAlias = Callable[[Any], Any]
Lookup: TypeAlias = Callable[..., Any]
"""Executes a call: takes the arguments, and a `ValueTable` if its tensors are ids."""
_ONLY_INTEGERS = {int}
_LONGEST_LIST = 64
"""Calls with longer lists of tensors are dispatched without a lookup: the keys of many would fill the memory."""
_UNROLLED = 3
"""Calls that begin with at most so many tensors, and have no other arguments that need work, are read without loops."""


class ValueTable(Protocol):
    """A table of the tensors that calls from the wire name by ids."""

    values: dict[int, Any]


class Layout(NamedTuple):
    """Where tensors are among the arguments of a call, and what else must be done to read it.

    ``signed`` are positions of floats and complex numbers, ``decoded`` those of attributes that come encoded, and
    ``scalars`` the ones among them whose type matters: see ``signature``; ``lists`` are those of lists of tensors.
    """

    tensors: tuple[int, ...]
    signed: tuple[int, ...] = ()
    decoded: tuple[tuple[int, Decode], ...] = ()
    scalars: tuple[int, ...] = ()
    lists: tuple[int, ...] = ()

    @property
    def leading(self) -> int:
        """How many tensors come first, where nothing else needs work and they are few; otherwise 0.

        After one tensor attributes may have to be decoded.
        """
        count = len(self.tensors)
        is_plain = not (self.signed or self.scalars or self.lists or (self.decoded and count != 1))
        return count if is_plain and self.tensors == tuple(range(count)) and count <= _UNROLLED else 0


Cached: TypeAlias = Callable[[Operator, tuple[Any, ...], CacheKey], Any]


def make_lookup(operator: Operator, layout: Layout, uncached: Lookup, dispatch_and_cache: Cached) -> Lookup:
    """The lookup of calls whose arguments have a layout.

    ``uncached`` gets what the lookup gets, where that cannot be read; ``dispatch_and_cache`` gets what is not cached.
    Every operation passes a lookup: the usual forms are written out, and nothing is called that can be avoided.
    """
    if new_lookup is not None:
        return new_lookup(operator, *layout, uncached, dispatch_and_cache, _LONGEST_LIST)  # type: ignore[no-any-return]
    return make_lookup_in_python(operator, layout, uncached, dispatch_and_cache)


def make_lookup_in_python(operator: Operator, layout: Layout, uncached: Lookup, dispatch_and_cache: Cached) -> Lookup:
    """The same where nothing is in C."""
    return _MAKERS[layout.leading](operator, layout, uncached, dispatch_and_cache)


def _of_any(operator: Operator, layout: Layout, uncached: Lookup, dispatch_and_cache: Cached) -> Lookup:
    """The lookup of any arguments."""
    marker, runs = object(), operator.runs  # the marker tells its keys from other lookups'
    tensors, signed, decoded, scalars, lists = layout

    def lookup(items: Any, table: ValueTable | None = None) -> Any:
        ctx = context.current
        try:
            bound, key_set = list(items), ctx.included
            if table is None:
                read = bound.copy()
                for position in tensors:
                    value = bound[position]
                    key_set |= value.keys
                    read[position] = value.meta
            else:
                values = table.values
                for position, decode in decoded:
                    bound[position] = decode(bound[position])
                read = bound.copy()
                for position in tensors:
                    bound[position] = value = values[bound[position]]
                    key_set |= value.keys
                    read[position] = value.meta
                for position in scalars:
                    item = bound[position]
                    read.append(item.__class__ if item and item.__class__ is not complex else number_identity(item))
            for position in lists:
                held = _tensors_of(items[position], table)
                for value in held:
                    key_set |= value.keys
                bound[position], read[position] = held, tuple([value.meta for value in held])
            for position in signed:
                item = items[position]
                if not item or item.__class__ is complex:
                    read.append(repr(item))
            args = tuple(bound)
            key: CacheKey = (marker, dtypes._default, key_set & ~ctx.excluded, tuple(read))
        except Exception:
            return uncached(items, table)
        run = runs.get(key)
        if run is None or ctx.trace is not None:
            return dispatch_and_cache(operator, args, key)
        return run(args)

    return lookup


def _of_one(operator: Operator, layout: Layout, uncached: Lookup, dispatch_and_cache: Cached) -> Lookup:
    """The lookup of a tensor and of attributes, some of which may have to be decoded."""
    marker, runs = object(), operator.runs
    decoded = tuple([(position - 1, decode) for position, decode in layout.decoded])

    def lookup(items: Any, table: ValueTable | None = None) -> Any:
        ctx = context.current
        try:
            if table is None:
                args, a, rest = items, items[0], items[1:]
            else:
                a, rest = table.values[items[0]], items[1:]
                for position, decode in decoded:
                    rest[position] = decode(rest[position])
                rest = tuple(rest)
                args = (a,) + rest
            key: CacheKey = (marker, dtypes._default, (ctx.included | a.keys) & ~ctx.excluded, a.meta, rest)
        except Exception:
            return uncached(items, table)
        run = runs.get(key)
        if run is None or ctx.trace is not None:
            return dispatch_and_cache(operator, args, key)
        return run(args)

    return lookup


def _of_two(operator: Operator, layout: Layout, uncached: Lookup, dispatch_and_cache: Cached) -> Lookup:
    """The lookup of two tensors and of attributes that need no work."""
    marker, runs = object(), operator.runs

    def lookup(items: Any, table: ValueTable | None = None) -> Any:
        ctx = context.current
        try:
            if table is None:
                args, a, b, rest = items, items[0], items[1], items[2:]
            else:
                values, rest = table.values, tuple(items[2:])
                a, b = values[items[0]], values[items[1]]
                args = (a, b) + rest
            key_set = (ctx.included | a.keys | b.keys) & ~ctx.excluded
            key: CacheKey = (marker, dtypes._default, key_set, a.meta, b.meta, rest)
        except Exception:
            return uncached(items, table)
        run = runs.get(key)
        if run is None or ctx.trace is not None:
            return dispatch_and_cache(operator, args, key)
        return run(args)

    return lookup


def _of_three(operator: Operator, layout: Layout, uncached: Lookup, dispatch_and_cache: Cached) -> Lookup:
    """The lookup of three tensors and of attributes that need no work."""
    marker, runs = object(), operator.runs

    def lookup(items: Any, table: ValueTable | None = None) -> Any:
        ctx = context.current
        try:
            if table is None:
                args, a, b, c, rest = items, items[0], items[1], items[2], items[3:]
            else:
                values, rest = table.values, tuple(items[3:])
                a, b, c = values[items[0]], values[items[1]], values[items[2]]
                args = (a, b, c) + rest
            key_set = (ctx.included | a.keys | b.keys | c.keys) & ~ctx.excluded
            key: CacheKey = (marker, dtypes._default, key_set, a.meta, b.meta, c.meta, rest)
        except Exception:
            return uncached(items, table)
        run = runs.get(key)
        if run is None or ctx.trace is not None:
            return dispatch_and_cache(operator, args, key)
        return run(args)

    return lookup


_MAKERS: tuple[Callable[[Operator, Layout, Lookup, Cached], Lookup], ...] = (_of_any, _of_one, _of_two, _of_three)
"""By how many tensors come first."""


def _tensors_of(items: Any, table: ValueTable | None) -> tuple[Any, ...]:
    """The tensors of a list; ValueError where it is long, or holds anything else beside ids."""
    if len(items) > _LONGEST_LIST:
        raise ValueError("too long to be kept")
    if table is None:
        return tuple(items)
    if {*map(type, items)} != _ONLY_INTEGERS:
        raise ValueError("not only ids")
    return tuple([table.values[item] for item in items])
