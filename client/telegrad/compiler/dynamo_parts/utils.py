"""``torch._dynamo.utils``: counters, comparisons and copies that tests and benchmarks of compiled functions use."""

from __future__ import annotations

import functools
import os
import time
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.config import dynamo_config
from telegrad.compiler.counters import counters as counters
from telegrad.compiler.dynamo_parts.alike import same as same
from telegrad.random import fork_rng as preserve_rng_state  # noqa: F401 - what is drawn leaves no trace
from telegrad.utils._pytree import tree_map_only

compilation_time_metrics: Final[defaultdict[str, list[float]]] = defaultdict(list)
"""Seconds that blocks of ``dynamo_timed`` took, by their keys."""
_told: Final[set[Any]] = set()


@contextmanager
def dynamo_timed(key: str, *args: Any, **options: Any) -> Iterator[Any]:
    """Measure how long a block takes, for ``compile_times``."""
    begin = time.perf_counter()
    try:
        yield None
    finally:
        compilation_time_metrics[key].append(time.perf_counter() - begin)


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """Return the times of measured blocks as a text, or with ``"csv"`` as lists of names and of seconds."""
    rows = [
        (name, f"{sum(seconds):.4f}" if aggregate else ", ".join([f"{one:.4f}" for one in seconds]))
        for name, seconds in compilation_time_metrics.items()
    ]
    if repr == "csv":
        return [name for name, _ in rows], [shown for _, shown in rows]
    lines = [f"{name}, {shown}" for name, shown in (("Function", "Runtimes (s)"), *rows)]
    return "\n".join(["TorchDynamo compilation metrics:", *lines])


def clone_input(x: Any, *, dtype: Any = None) -> Any:
    """Return a copy of a tensor with its strides, type, need of gradients and gradient."""
    with no_grad():
        made = function("empty_strided")(x.size(), x.stride(), dtype=dtype or x.dtype, device=x.device)
        made.copy_(x)
    made.requires_grad_(x.requires_grad)
    if x.is_leaf and x.grad is not None:
        made.grad = clone_input(x.grad, dtype=dtype)
    return made


def clone_inputs(example_inputs: Any) -> Any:
    """Return copies of tensors in a list or a dict; what else is in it stays."""
    if isinstance(example_inputs, dict):
        return {key: tree_map_only(Tensor, clone_input, value) for key, value in example_inputs.items()}
    return [clone_input(one) if isinstance(one, Tensor) else one for one in example_inputs]


def clone_tensor(x: Tensor) -> Tensor:
    """Return a copy of a tensor, of its own, that needs gradients as it does."""
    made: Tensor = x.clone().requires_grad_(x.requires_grad)
    return made


def rmse(ref: Tensor, res: Tensor) -> Tensor:
    """Return the root of the mean of squared differences."""
    made: Tensor = ((ref - res) ** 2).mean().sqrt()
    return made


def bitwise_same(ref: Any, res: Any, equal_nan: bool = False) -> bool:
    """Tell whether results are equal to the bit."""
    return same(ref, res, tol=0.0, equal_nan=equal_nan)


def timed(model: Any, example_inputs: Iterable[Any], times: int = 1) -> tuple[Any, float]:
    """Return what a model gives for these arguments, and the seconds that so many calls took."""
    result, begin = None, time.perf_counter()
    for _ in range(times):
        result = model(*example_inputs)
    return result, time.perf_counter() - begin


def checkpoint_params(gm: Any) -> Callable[[], None]:
    """Return a function that gives the parameters and buffers of a module the elements that they have now."""
    saved = [(one, one.detach().clone()) for one in (*gm.parameters(), *gm.buffers())]

    def restore() -> None:
        with no_grad():
            for one, elements in saved:
                one.copy_(elements)

    return restore


def print_once(*args: Any) -> None:
    """Print values, unless they were printed before."""
    if _is_first(("print", *map(id, args))):
        print(*args)


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn, unless the same was warned before."""
    if _is_first(("warn", msg)):
        warnings.warn(msg, stacklevel=stacklevel + 1)


def _is_first(what: Any) -> bool:
    is_first = what not in _told
    _told.add(what)
    return is_first


def istype(obj: object, allowed_types: Any) -> bool:
    """Tell whether an object is of exactly this class, or of one of these."""
    return type(obj) in (allowed_types if isinstance(allowed_types, (tuple, list, set)) else (allowed_types,))


def is_namedtuple_cls(cls: Any) -> bool:
    """Tell whether a class is one of named tuples."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple(obj: Any) -> bool:
    """Tell whether an object is a named tuple."""
    return is_namedtuple_cls(type(obj))


def namedtuple_fields(cls: type) -> tuple[str, ...]:
    """Return the names of a named tuple's fields."""
    return cls._fields  # type: ignore[attr-defined,no-any-return]


def is_function(value: Any) -> bool:
    """Tell whether a value is a function, of Python's or built in."""
    return isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodWrapperType))


def ifdynstaticdefault(count1: Any, count2: Any) -> Any:
    """Return the first value where sizes are numbers of a graph until they vary, else the second one."""
    return count1 if dynamo_config.assume_static_by_default else count2


@contextmanager
def disable_cache_limit() -> Iterator[None]:
    """Let a backend be given any number of graphs of a function within the block."""
    with dynamo_config.patch(recompile_limit=1 << 30, accumulated_recompile_limit=1 << 30):
        yield


@contextmanager
def maybe_enable_compiled_autograd(
    should_enable: bool, fullgraph: bool = True, dynamic: bool = True
) -> Iterator[None]:  # fmt: skip
    """Change nothing: backward passes are the server's, which replays them."""
    yield


def get_debug_dir() -> str:
    """Return the directory that compilers of the program's own may write to."""
    return os.path.join(os.getcwd(), "torch_compile_debug")


def to_subclass(t: Any, cls: type) -> Any:
    """Return a tensor as one of a class."""
    return t.as_subclass(cls)


def get_first_attr(obj: Any, *attrs: str) -> Any:
    """Return the first of these attributes that an object has."""
    for attr in attrs:
        if hasattr(obj, attr):
            return getattr(obj, attr)
    raise AssertionError(f"{obj} does not has any of the attributes: {attrs}")


def lazy_format_graph_code(name: str, gm: Any, maybe_id: int | None = None, **options: Any) -> Any:
    """Return an object whose text is the code of a graph."""
    return LazyString(lambda: f"TRACED GRAPH\n {name} {gm.print_readable(print_output=False)}\n")


class LazyString:
    """A text that is made when it is shown."""

    def __init__(self, func: Callable[..., str], *args: Any, **kwargs: Any) -> None:
        self._made = functools.partial(func, *args, **kwargs)

    def __str__(self) -> str:
        return self._made()


def is_compile_supported(device_type: Any) -> bool:
    """Whether functions on this type of device can be compiled: they can."""
    return True


def detect_fake_mode(inputs: Any = None) -> None:
    """Return None: no function is traced."""


def get_compilation_metrics() -> list[Any]:
    """Return an empty list: nothing is compiled in this process."""
    return []


clear_compilation_metrics = _told.clear
