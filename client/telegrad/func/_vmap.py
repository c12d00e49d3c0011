"""``vmap``: a function of single elements, called once for all elements of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad._batching import handler as _handler
from telegrad._batching.tensor import batched_at, is_batched_at, physical_at
from telegrad._ops.batching import Level, batching, entered
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, DimensionError

from ._trees import leaves_of, with_leaves


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that computes ``func`` for each element along ``in_dims`` and stacks the results.

    ``func`` is called once, with tensors that have the shape of one element; operations on them are computed for the
    whole batch. With ``chunk_size`` it is called for so many elements at a time. ``randomness`` says whether each
    element draws ``different`` numbers or all draw the ``same``, or that drawing is an ``error``. Arguments by keyword
    are not mapped. Raises ArgumentError where ``in_dims`` and ``out_dims`` do not fit.
    """
    check_randomness(randomness)
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        dims = _spread(_as_tuple(in_dims, args), args, "in_dims")
        given = leaves_of(args)
        count = _size(given, dims)
        mapped = _Mapped(func, out_dims, randomness)
        fronts = [leaf if dim is None else _front(leaf, dim) for leaf, dim in zip(given, dims, strict=True)]
        if chunk_size is None or chunk_size >= count:
            return mapped.of(args, kwargs, fronts, dims, count)
        chunks = []
        for start in range(0, count, chunk_size):
            length = min(chunk_size, count - start)
            parts = [
                leaf if dim is None else leaf.narrow(0, start, length) for leaf, dim in zip(fronts, dims, strict=True)
            ]
            chunks.append(mapped.of(args, kwargs, parts, dims, length))
        return _joined(chunks, out_dims)

    return wrapped


def check_randomness(randomness: str) -> None:
    """Raise ArgumentError for what ``vmap`` does not know as ``randomness``."""
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


class _Mapped:
    """A function that is called for whole batches."""

    def __init__(self, func: Callable[..., Any], out_dims: Any, randomness: str) -> None:
        self.func = func
        self.out_dims = out_dims
        self.randomness = randomness

    def of(self, args: Any, kwargs: Any, fronts: list[Any], dims: list[int | None], count: int) -> Any:
        """Return the results for a batch; ``fronts`` are the leaves of the arguments, with the batch in front."""
        _handler.enter()
        with entered(Level(count, self.randomness, batching.derivatives)) as number:
            values = [leaf if dim is None else batched_at(leaf, number) for leaf, dim in zip(fronts, dims, strict=True)]
            result = self.func(*with_leaves(args, values), **kwargs)
            places = _spread(self.out_dims, result, "out_dims")
            name = getattr(self.func, "__name__", repr(self.func))
            leaves = zip(leaves_of(result), places, strict=True)
            outs = [_out(name, leaf, dim, number, count) for leaf, dim in leaves]
        return with_leaves(result, outs)


def _front(leaf: Any, dim: int) -> Any:
    return leaf if dim in (0, -leaf.dim()) else leaf.movedim(dim, 0)


def _out(name: str, leaf: Any, dim: int | None, number: int, count: int) -> Any:
    if not isinstance(leaf, Tensor):
        raise ArgumentError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    if dim is None:
        if is_batched_at(leaf, number):
            raise ArgumentError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return leaf
    if not -leaf.dim() - 1 <= dim <= leaf.dim():
        raise DimensionError(f"vmap: Dimension out of range, out_dims={dim} for a result of {leaf.dim()} dimensions")
    front = physical_at(leaf, number, count)
    return front if dim == 0 else front.movedim(0, dim)


def _joined(chunks: list[Any], out_dims: Any) -> Any:
    """Return the results of several batches as those of one."""
    first = chunks[0]
    dims = _spread(out_dims, first, "out_dims")
    columns = zip(*[leaves_of(chunk) for chunk in chunks], strict=True)
    joined = [
        column[0] if dim is None else function("cat")(list(column), dim)
        for column, dim in zip(columns, dims, strict=True)
    ]
    return with_leaves(first, joined)


def _as_tuple(in_dims: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(in_dims, (int, tuple, list)):
        raise ArgumentError(
            "vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got "
            f"{type(in_dims).__name__}"
        )
    if not args:
        raise ArgumentError("vmap: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over none")
    return in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)


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
