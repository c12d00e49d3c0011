"""Small functions under the names by which layers of other people import them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

__all__: list[str] = []


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that makes ``n`` equal numbers of one, and a tuple of several."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (
    _ntuple(n, name) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1)
)


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Return the entries in reverse order, each ``n`` times."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Sequence[int | None] | int, defaults: Sequence[int]) -> Any:
    """Return ``out_size`` with the entries of ``defaults``, counted from the end, in the place of None."""
    if isinstance(out_size, int):
        return out_size
    return [own if own is not None else other for own, other in zip(out_size, defaults[-len(out_size) :], strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Strip a prefix, such as that of ``DataParallel``, from the keys of a state dictionary, in place."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", {})
    for key in list(metadata):
        if key == prefix.removesuffix("."):
            metadata[""] = metadata.pop(key)
        elif key.startswith(prefix):
            metadata[key[len(prefix) :]] = metadata.pop(key)
