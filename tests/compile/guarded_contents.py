"""Functions that read what containers and tuples hold, down to containers in them, and what a program changes there."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from .guarded import CHANGES, Guarded, builder, guarded

Kept = namedtuple("Kept", ["weight", "power"])


def _reads(name: str, make: Callable[[], Any], read: Callable[[Any], float], change: Callable[[Any], Any]) -> None:
    """Add a case in which a function reads a number from what is kept around it, which changes once."""

    def build(tg: Any) -> Guarded:
        kept = make()

        def function(x: Any) -> Any:
            return x.sin() * read(kept) + x.cos() - x

        return guarded(function, lambda: change(kept))

    build.__name__ = name
    builder(build)


def _nested() -> list[Any]:
    return [[1.0, 2.0], [3.0, 4.0]]


def _change_first(kept: Any) -> None:
    kept[0][1] = 9.0


def _unpacked(kept: Any) -> float:
    (a, b), (c, d) = kept
    return a * b + c * d


def _looped(kept: Any) -> float:
    total = 0.0
    for a, b in kept:
        total += a * b
    for number, (a, b) in enumerate(kept):
        total += a - b * number
    return total


def _extended(kept: Any) -> float:
    values = [0.5]
    values.extend(kept[0])
    return sum(values)


def _updated(kept: Any) -> float:
    values = {"a": 1.0, "b": 2.0}
    values.update(kept)
    return values["a"] + values["b"]


def _in_text(kept: Any) -> float:
    return float(len("-".join(kept)))


def _in_text_of_all(kept: Any) -> float:
    return float(len("%s" % kept))  # noqa: UP031


def _joined(kept: Any) -> float:
    return sum(sum(kept, []))  # noqa: RUF017


def _joined_in_turn(kept: Any) -> float:
    return sum(sum((one for one in kept), []))  # noqa: RUF017


def _put_into(kept: Any) -> float:
    values = [1.0, 2.0, 3.0]
    values[1:] = kept[0]
    return sum(values)


_reads(
    "list_in_a_list_is_compared", _nested, lambda kept: 2.0 if kept == [[1.0, 2.0], [3.0, 4.0]] else 3.0, _change_first
)
_reads("list_in_a_list_is_looked_for", _nested, lambda kept: 2.0 if [1.0, 2.0] in kept else 3.0, _change_first)
_reads(
    "place_of_a_list_in_a_list",
    lambda: [[1.0], [2.0], [1.0, 5.0]],
    lambda kept: kept.count([2.0]),
    lambda kept: kept[0].__setitem__(0, 2.0),
)
_reads("lists_are_joined", _nested, _joined, _change_first)
_reads("lists_of_a_generator_are_joined", _nested, _joined_in_turn, _change_first)
_reads("pairs_become_a_dict", lambda: [["a", 1.0], ["b", 2.0]], lambda kept: dict(kept)["a"], _change_first)
_reads("lists_are_mapped", _nested, lambda kept: sum([one[1] for one in map(tuple, kept)]), _change_first)
_reads(
    "empty_lists_are_left_out",
    lambda: [[], [1.0]],
    lambda kept: len(list(filter(None, kept))),
    lambda kept: kept[0].append(1.0),
)
_reads(
    "lists_are_asked_for_truth",
    lambda: [[], []],
    lambda kept: 2.0 if any(kept) else 3.0,
    lambda kept: kept[1].append(0),
)
_reads("the_largest_list", _nested, lambda kept: max(kept)[1], lambda kept: kept[0].__setitem__(0, 7.0))
_reads("lists_are_sorted", _nested, lambda kept: sorted(kept)[0][0], lambda kept: kept[0].__setitem__(0, 7.0))
_reads("list_that_is_added", _nested, _extended, _change_first)
_reads("list_that_is_put_into_another", _nested, _put_into, _change_first)
_reads("dict_that_is_added", lambda: {"a": 3.0}, _updated, lambda kept: kept.update(a=5.0))
_reads("set_that_is_joined", lambda: {1, 2}, lambda kept: len({5}.union(kept)), lambda kept: kept.add(7))
_reads(
    "set_that_is_contained",
    lambda: {1, 2},
    lambda kept: 2.0 if {1}.issubset(kept) else 3.0,
    lambda kept: kept.remove(1),
)
_reads("texts_are_joined", lambda: ["a", "b"], _in_text, lambda kept: kept.append("c"))
_reads("text_of_a_list", lambda: [[1]], _in_text_of_all, lambda kept: kept[0].append(2))
_reads("parts_are_unpacked", _nested, _unpacked, _change_first)
_reads("parts_are_unpacked_in_turn", _nested, _looped, _change_first)
_reads("parts_are_unpacked_in_a_comprehension", _nested, lambda kept: sum([a * b for a, b in kept]), _change_first)
_reads(
    "keywords_of_a_partial",
    lambda: partial(lambda a, by: a * by, by=2.0),
    lambda kept: kept(1.5),
    lambda kept: kept.keywords.update(by=4.0),
)


@builder
def names_in_a_tuple(tg: Any) -> Guarded:
    def function(x: Any, *more: Any) -> Any:
        first, second = x.sin(), more[0] * 2
        first, second = second, first
        pair = Kept(first, second)
        return (pair.weight + pair[1]) * x, (pair, [*more, x][0])[1]

    return guarded(function, arguments=lambda x, number: (x, x + 1))


@builder
def list_that_is_given_and_kept(tg: Any) -> Guarded:
    kept = [1.0, 2.0]

    def function(x: Any, numbers: Any) -> Any:
        return x.sin() * kept[0] + x.cos() - x * numbers[1]

    return guarded(
        function, lambda: kept.__setitem__(0, 5.0),
        arguments=lambda x, number: (x, kept if number < CHANGES else [1.0, 2.0]),
    )  # fmt: skip


@builder
def which_list_is_given(tg: Any) -> Guarded:
    kept = SimpleNamespace(last=[1.0])

    def function(x: Any, numbers: Any) -> Any:
        return x.sin() * (2.0 if numbers is kept.last else 3.0) + x.cos() - x

    return guarded(
        function, arguments=lambda x, number: (x, [1.0] if number < CHANGES else kept.last), is_left_out=False
    )


@builder
def keys_that_are_tensors(tg: Any) -> Guarded:
    first, second = tg.ones(3, 4), tg.ones(3, 4)
    kept = {first: 2.0, second: 3.0}

    def function(x: Any, key: Any) -> Any:
        return x.sin() * kept[key] + x.cos() - x

    return guarded(function, arguments=lambda x, number: (x, first if number < CHANGES else second), is_left_out=False)


def _given_elsewhere(name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Add a case in which a tensor is an argument, and is also what the function has by another way."""

    def build(tg: Any) -> Guarded:
        kept = tg.linspace(1, 2, 4)
        return guarded(
            make(kept), arguments=lambda x, number: (kept,) if number < CHANGES else (x[0],), is_left_out=False
        )

    build.__name__ = name
    builder(build)


def _by_default(kept: Any) -> Callable[..., Any]:
    def function(x: Any, weight: Any = kept) -> Any:
        return x * weight + weight.sin() - x.cos()

    return function


def _by_default_of_a_helper(kept: Any) -> Callable[..., Any]:
    def helper(x: Any, *, weight: Any = kept) -> Any:
        return x * weight + weight.sin() - x.cos()

    return lambda x: helper(x)


def _by_partial(kept: Any) -> Callable[..., Any]:
    product = partial(lambda weight, x: x * weight + weight.sin() - x.cos(), kept)

    def function(x: Any) -> Any:
        return product(x)

    return function


def _by_named_tuple(kept: Any) -> Callable[..., Any]:
    pair = Kept(kept, 2)

    def function(x: Any) -> Any:
        return x * pair.weight + pair.weight.sin() - x.cos()

    return function


def _by_unpacking(kept: Any) -> Callable[..., Any]:
    pair = Kept(kept, 2)

    def function(x: Any) -> Any:
        weight, power = pair
        return x * weight + weight.sin() ** power - x.cos()

    return function


_given_elsewhere("a_default_is_given", _by_default)
_given_elsewhere("a_default_of_a_helper_is_given", _by_default_of_a_helper)
_given_elsewhere("what_a_partial_has_is_given", _by_partial)
_given_elsewhere("what_a_named_tuple_has_is_given", _by_named_tuple)
_given_elsewhere("what_is_unpacked_is_given", _by_unpacking)
