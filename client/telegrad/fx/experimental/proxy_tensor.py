"""``make_fx``: the operators that a function calls on given arguments, as a graph of ``torch.fx``.

Functions that differentiate are run a second time, on tensors without elements, whose gradients are the client's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._session.current import current_session, has_session
from telegrad._session.shapes.shape_session import meta_session
from telegrad._tensor.tensor import Tensor
from telegrad.fx._code.pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from telegrad.fx.graph_module import GraphModule
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from telegrad_protocol.errors import ArgumentError

from .function_calls import FunctionTracing
from .proxied import ProxiedTracing
from .symbolic_tracing import SymbolicTracing, symbols_of
from .tracing_mode import Tracing, UnseenError
from .unknowns import Unknowns

_MODES: Final = ("real", "fake", "symbolic")


def get_proxy_mode() -> None:
    """Return None: no such tracing is under way."""
    return None


def make_fx(
    f: Callable[..., Any], decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real", _allow_non_fake_inputs: bool = False, **options: Any,
) -> Callable[..., GraphModule]:  # fmt: skip
    """Return a function that runs ``f`` on its arguments and returns the operators that were called, as a module.

    ``decomposition_table`` gives functions for operators that are not to be in the graph. ``tracing_mode="fake"`` runs
    on tensors without elements, ``"symbolic"`` several times on some of other sizes, so that the graph is for all
    sizes of the arguments at which the function does the same. What reads elements is refused.
    ``_allow_non_fake_inputs`` admits tensors that are no arguments. The other options, which are PyTorch's, change
    nothing.
    """
    if tracing_mode not in _MODES:
        raise ArgumentError(f"Unexpected tracing type: {tracing_mode}")
    decompositions = decomposition_table or {}

    def by_mode(leaves: list[Any], structure: TreeSpec, is_fake: bool, unknowns: Unknowns | None = None) -> GraphModule:
        try:
            if not is_fake:
                return _by_mode(f, leaves, structure, decompositions)
            with FakeTensorMode(allow_non_fake_inputs=_allow_non_fake_inputs) as fake:
                shapes = [fake.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
                return _by_mode(f, shapes, structure, decompositions, unknowns)
        except UnseenError:
            tracing = ProxiedTracing(decompositions)
            return _traced(f, tracing, tracing.proxied_all(leaves), structure)

    @functools.wraps(f)
    def trace(*args: Any) -> GraphModule:
        leaves, structure = tree_flatten(args)
        if tracing_mode == "real":
            return by_mode(leaves, structure, False)
        symbols = symbols_of(leaves) if tracing_mode == "symbolic" else []
        return SymbolicTracing(
            lambda given, unknowns: by_mode(given, structure, True, unknowns), leaves, symbols
        ).traced()

    return trace


def get_isolated_graphmodule(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tracing_mode: str = "real",
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
) -> GraphModule:  # fmt: skip
    """Return what ``func`` calls on these arguments as a module, which is called on a list of their leaves."""
    leaves, structure = tree_flatten((args, kwargs))

    def on_leaves(flat_args: list[Any]) -> Any:
        given, named = tree_unflatten(flat_args, structure)
        return func(*given, **named)

    return make_fx(on_leaves, decomposition_table, tracing_mode)(leaves)


def _by_mode(
    f: Callable[..., Any], leaves: list[Any], structure: TreeSpec, decompositions: Any, unknowns: Unknowns | None = None
) -> GraphModule:  # fmt: skip
    leaves = [leaf.view_as(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    sessions = {leaf._session for leaf in leaves if isinstance(leaf, Tensor)} | {meta_session}
    tracing = FunctionTracing(decompositions, sessions | {current_session()} if has_session() else sessions)
    tracing.unknowns = unknowns
    return _traced(f, tracing, leaves, structure)


def _traced(f: Callable[..., Any], tracing: Tracing, leaves: list[Any], structure: TreeSpec) -> GraphModule:
    args = tree_unflatten(leaves, structure)
    kind = type(f).__name__ if isinstance(f, Module) else getattr(f, "__name__", type(f).__name__)
    module = tracing.traced(lambda: f(*args), leaves, _names(f, args), kind)
    if any(isinstance(arg, (tuple, list, dict)) for arg in args):
        names = [f"arg{place}" for place in range(len(args))]
        module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, structure, None)))
        module.recompile()
    return module


def _names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """Return a name for each leaf of the arguments, of its parameter and of its place in it."""
    try:
        parameters = [] if isinstance(f, Module) else [*inspect.signature(f).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    is_named = len(parameters) >= len(args) and not any(one.kind is one.VAR_POSITIONAL for one in parameters)
    given = [parameters[place].name if is_named else f"arg{place}" for place in range(len(args))]
    return [f"{name}_{i}" for name, arg in zip(given, args) for i in range(1, len(tree_flatten(arg)[0]) + 1)]
