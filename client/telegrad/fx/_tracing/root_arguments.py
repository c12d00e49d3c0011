"""Placeholders for the parameters of what is traced, and values for those that are to be constants."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from telegrad._programs.private.checks import _assert
from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .._code.pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from ..node import base_types
from .wrapping import wrap

HAS_VARSTUFF: Final = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class PHBase:
    """Stands for an input among ``concrete_args`` that is not constant."""

    def __repr__(self) -> str:
        return "PH"


PH: Final = PHBase()


class PHWithMeta(PHBase):
    """Such an input with attributes, which its node gets."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


@wrap
def _assert_is_none(value: Any, msg: str) -> None:
    """Raise AssertionError where a value is not None."""
    if value is not None:
        raise AssertionError(msg)


_assert_is_none.__module__ = "telegrad.fx._symbolic_trace"


def arguments_for(tracer: Any, root_fn: Any, is_module: bool, concrete_args: Any) -> tuple[Callable[..., Any], Any]:
    """Return the function to call, and proxies for its arguments; the graph gets their placeholders."""
    described = inspect.unwrap(root_fn)
    code = described.__code__
    total = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames)
    args: list[Any] = []
    if is_module:
        if total == 0:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        args.append(tracer.root)
    if isinstance(concrete_args, tuple) and concrete_args and code.co_flags & HAS_VARSTUFF and total == 1:
        for place, given in enumerate(concrete_args):
            args.append(tracer.create_proxy("placeholder", f"input_{place}", (), {}))
            _hand_over(given, args[-1].node)
        return root_fn, args
    own = names[len(args) : total]
    if isinstance(concrete_args, tuple):
        if len(own) != len(concrete_args):
            raise RuntimeError(f"Tracing expected {len(own)} arguments but got {len(concrete_args)} concrete arguments")
        concrete_args = dict(zip(own, concrete_args, strict=True))
    rest = [("*", inspect.CO_VARARGS), ("**", inspect.CO_VARKEYWORDS)]
    starred = [stars for stars, flag in rest if code.co_flags & flag]
    own += [f"{stars}{name}" for stars, name in zip(starred, names[total:], strict=False)]
    signature = inspect.signature(described)
    args += [_placeholder(tracer, name, concrete_args or {}, signature, described) for name in own]
    if code.co_kwonlyargcount or starred:
        root_fn = _taking_all_by_position(root_fn, len(args))
    leaves, spec = tree_flatten(tuple(args))
    if all(child.is_leaf() for child in spec.children()):
        return root_fn, args
    return _with_trees(tracer, root_fn, names[:total], spec), leaves


def is_annotated_by_telegrad(func: Any) -> bool:
    """Whether a function is telegrad's own, whose annotations are not shown: PyTorch's layers have few."""
    return (func.__module__ or "").startswith("telegrad.")


def _with_trees(tracer: Any, root_fn: Any, names: list[str], in_spec: Any) -> Callable[..., Any]:
    """Return a function of the leaves of all arguments, and let the graph's code take the arguments themselves."""
    codegen = tracer.graph._codegen = _PyTreeCodeGen(_PyTreeInfo(names, in_spec, None))

    def run(*args: Any) -> Any:
        returned = root_fn(*tree_unflatten(args, in_spec))
        leaves, out_spec = tree_flatten(returned)
        codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
        return leaves

    run.__annotations__ = {}
    return run


def _taking_all_by_position(func: FunctionType, count: int) -> FunctionType:
    """Return a function whose parameters, starred ones too, are all given by position."""
    code = func.__code__.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=func.__code__.co_flags & ~HAS_VARSTUFF
    )
    return FunctionType(code, func.__globals__, func.__name__, func.__defaults__, func.__closure__)


def _placeholder(
    tracer: Any, name: str, concrete_args: dict[str, Any], signature: inspect.Signature, described: Any
) -> Any:
    parameter = signature.parameters.get(name)
    default = () if parameter is None or parameter.default is parameter.empty else (parameter.default,)
    if name not in concrete_args:
        typed = None if is_annotated_by_telegrad(described) else described.__annotations__.get(name)
        return tracer.create_proxy("placeholder", name, default, {}, type_expr=typed)
    count = 0

    def constant(value: Any) -> Any:
        nonlocal count
        count += 1
        proxy = tracer.create_proxy("placeholder", f"{name}_{count}", default, {})
        if isinstance(value, PHBase):
            _hand_over(value, proxy.node)
            return proxy
        _check_specialised(tracer, name, proxy, value)
        return value

    return tree_map(constant, concrete_args[name])


def _check_specialised(tracer: Any, name: str, proxy: Any, value: Any) -> None:
    """Record a check that an input has the value that it was made a constant with."""
    problem = f"{name} has been specialized to have value {value} but got another value"
    if isinstance(value, base_types) and not isinstance(value, Tensor):
        tracer.create_proxy("call_function", _assert, (proxy == value, problem), {})
    elif value is None:
        tracer.create_proxy("call_function", _assert_is_none, (proxy, problem), {})
    else:
        warnings.warn(
            f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the "
            "user to make sure that your inputs match the inputs you specialized the function with.",
            stacklevel=2,
        )


def _hand_over(given: Any, node: Any) -> None:
    """Give a node the attributes that a program has set on what stands for its input."""
    if isinstance(given, PHBase) and given is not PH:
        for name, value in vars(given).items():
            if not callable(value) and not name.startswith("__") and not hasattr(node, name):
                setattr(node, name, value)
