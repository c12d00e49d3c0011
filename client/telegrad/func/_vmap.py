"""``vmap``: a function of single elements, called for each element of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from telegrad._ops.batching import Level, entered
from telegrad._ops.functions import function
from telegrad._ops.randomness import drawing
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import RandomState

from ._trees import leaves_of, mapped, with_leaves


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that calls ``func`` for each element along ``in_dims`` and stacks the results.

    The calls are made one after another and wait for nothing; ``chunk_size`` changes nothing. ``randomness`` says
    whether each call draws ``different`` numbers or all draw the ``same``, or that drawing is an ``error``. Arguments
    by keyword are not mapped. Raises ArgumentError where ``in_dims`` and ``out_dims`` do not fit.
    """
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        dims = _spread(_as_tuple(in_dims, args), args, "in_dims")
        given = leaves_of(args)
        count = _size(given, dims)
        results = []
        shared = frozenset([id(leaf) for leaf, dim in zip(given, dims, strict=True) if dim is None])
        with (
            entered(Level(randomness, shared)),
            _random_numbers(randomness, next(leaf._session for leaf in given if isinstance(leaf, Tensor))) as rewind,
        ):
            for number in range(max(count, 1)):
                rewind()
                values = [_element(leaf, dim, number, count) for leaf, dim in zip(given, dims, strict=True)]
                results.append(func(*with_leaves(args, values), **kwargs))
        stacked = _stacked(results, out_dims)
        return stacked if count else _emptied(stacked, _spread(out_dims, results[0], "out_dims"))

    return wrapped


def _as_tuple(in_dims: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(in_dims, (int, tuple, list)):
        raise ArgumentError(
            "vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got "
            f"{type(in_dims).__name__}"
        )
    if not args:
        raise ArgumentError("vmap: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over none")
    return in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)


@contextmanager
def _random_numbers(randomness: str, session: ClientSession) -> Iterator[Callable[[], None]]:
    """Let numbers be drawn as ``randomness`` says; what is yielded is to be called before each element."""
    if randomness != "same":
        with drawing(is_refused=randomness == "error"):
            yield lambda: None
        return
    state = session.new_id()
    session.submit(RandomState(state, False), thread.modes)
    try:
        with drawing(is_refused=False):
            yield lambda: session.submit(RandomState(state, True), thread.modes)
    finally:
        session.free(state)


def _element(leaf: Any, dim: int | None, number: int, count: int) -> Any:
    if dim is None:
        return leaf
    if count:
        return leaf.select(dim, number)
    shape = list(leaf.shape)
    del shape[dim]
    return leaf.new_zeros(shape)


def _spread(dims: Any, tree: Any, what: str) -> list[int | None]:
    """Return a dimension for everything in ``tree``; one that stands for a structure goes for all that is in it."""
    if dims is None or isinstance(dims, int):
        return [dims for _ in leaves_of(tree)]
    if isinstance(dims, dict) and isinstance(tree, dict) and dims.keys() == tree.keys():
        return [dim for key in tree for dim in _spread(dims[key], tree[key], what)]
    if isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list)) and len(dims) == len(tree):
        return [dim for part, inner in zip(dims, tree, strict=True) for dim in _spread(part, inner, what)]
    if isinstance(dims, (tuple, list)) and len(dims) == 1 and isinstance(tree, Tensor):
        return [dims[0]]
    raise ArgumentError(f"vmap: {what} does not have the structure of what it is for: {what}={dims!r}")


def _size(given: list[Any], dims: list[int | None]) -> int:
    sizes = set()
    for leaf, dim in zip(given, dims, strict=True):
        if dim is None:
            continue
        if not isinstance(leaf, Tensor):
            raise ArgumentError(f"vmap: got in_dim={dim} for an input that is no tensor but {type(leaf).__name__}")
        if not -leaf.dim() <= dim < leaf.dim():
            raise ArgumentError(f"vmap: got in_dim={dim} for some input of {leaf.dim()} dimensions")
        sizes.add(leaf.shape[dim])
    if len(sizes) != 1:
        raise ArgumentError(
            f"vmap: expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}"
            if sizes
            else "vmap: at least one input must be mapped over"
        )
    size: int = sizes.pop()
    return size


def _stacked(results: list[Any], out_dims: Any) -> Any:
    first = results[0]
    lines = [leaves_of(result) for result in results]
    dims = _spread(out_dims, first, "out_dims")
    stacked = []
    for place, dim in enumerate(dims):
        column = [line[place] for line in lines]
        if not isinstance(column[0], Tensor):
            raise ArgumentError(
                f"vmap: expected the function to only return tensors, got type {type(column[0]).__name__}"
            )
        stacked.append(column[0] if dim is None else function("stack")(column, dim))
    return with_leaves(first, stacked)


def _emptied(tree: Any, dims: list[int | None]) -> Any:
    """Return results of a batch of one as those of a batch of none."""
    rest = iter(dims)

    def empty(tensor: Tensor) -> Tensor:
        dim = next(rest)
        result: Tensor = tensor if dim is None else tensor.narrow(dim, 0, 0)
        return result

    return mapped(tree, empty)
