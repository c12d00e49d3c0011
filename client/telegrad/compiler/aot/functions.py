"""``functorch.compile`` and its like: compilers of a program's own are given forward and backward passes as graphs.

A function is traced with its gradients, as operators of PyTorch, and divided in two. What the compilers return computes
both passes from then on, in an ``autograd.Function``. Sizes are those of the arguments: others are traced anew.
Arguments that require gradients cannot be modified, as leaves cannot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from telegrad._session.grad_mode import enable_grad, is_grad_enabled, no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.autograd import grad
from telegrad.autograd.function import Function
from telegrad.func import functional_call
from telegrad.fx.experimental.proxied import shape_of, traced
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.passes.graph_drawer import FxGraphDrawer
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import tree_flatten, tree_unflatten

from .exports import aot_export_joint_simple as aot_export_joint_simple
from .exports import aot_export_module as aot_export_module
from .partitioners import default_partition
from .partitioners import min_cut_rematerialization_partition as min_cut_rematerialization_partition

Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]


def nop(fx_g: GraphModule, _: Any = None) -> GraphModule:
    """Return a graph as it is: a compiler by which the operators of a pass run one by one."""
    return fx_g


def print_compile(fx_g: GraphModule, _: Any = None) -> GraphModule:
    """Print the code of a graph, and return it."""
    print(fx_g.code)
    return fx_g


ts_compile = simple_ts_compile = debug_nop = boxed_nop_preserve_node_meta = nop


def debug_compile(fx_g: GraphModule, inps: Sequence[Any]) -> GraphModule:
    """Run a graph on its inputs, so that what fails in it fails here, and return it."""
    fx_g(*inps)
    return fx_g


def draw_graph(traced: GraphModule, fname: str, figname: str = "fx_graph", **options: Any) -> None:
    """Write a drawing of a graph to a file, as SVG unless its name ends otherwise."""
    base, _, ext = fname.rpartition(".")
    drawn = FxGraphDrawer(traced, figname).get_main_dot_graph()
    getattr(drawn, f"write_{ext if base else 'svg'}")(fname if base else f"{fname}.svg")


def draw_graph_compile(name: str) -> Compiler:
    """Return a compiler that draws each graph it is given, and returns it."""

    def draw(fx_g: GraphModule, _: Any) -> GraphModule:
        draw_graph(fx_g, name)
        return fx_g

    return draw


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Return a function of a list of the arguments of ``f``."""

    def call(args: list[Any]) -> Any:
        return f(*args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """Return a compiler whose functions take a list of arguments."""
    return lambda fx_g, inputs: make_boxed_func(compiler(fx_g, inputs))


class Compilers(NamedTuple):
    """What compiles forward and backward passes, and what runs without gradients; and what divides a graph."""

    forward: Compiler
    backward: Compiler
    inference: Compiler
    partition: Callable[..., tuple[GraphModule, GraphModule]]
    decompositions: Any


def _compilers(
    fw_compiler: Compiler, bw_compiler: Compiler | None = None, partition_fn: Any = default_partition,
    decompositions: Any = None, num_params_buffers: int = 0, keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None, *, dynamic: bool = False, enable_log: bool = True,
    disable_functionalization: bool = False, ignore_shape_env: bool = False,
) -> Compilers:  # fmt: skip
    """Return the compilers among the arguments of ``aot_function``; the others change no result here."""
    return Compilers(
        fw_compiler, bw_compiler or fw_compiler, inference_compiler or fw_compiler, partition_fn, decompositions
    )


def aot_function(fn: Callable[..., Any], fw_compiler: Compiler, *args: Any, **options: Any) -> Callable[..., Any]:
    """Return a function that computes ``fn`` and its gradients by what the compilers return for their graphs.

    ``fw_compiler`` is given forward passes, ``bw_compiler`` those of gradients, or ``fw_compiler`` as well, and
    ``inference_compiler`` those without gradients; ``partition_fn`` divides the graph of both, in which
    ``decompositions`` take operators apart. Arguments that are no tensors, and sizes, are part of the graphs.
    """
    compilers = _compilers(fw_compiler, *args, **options)
    known: dict[Any, _Compiled] = {}

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        key = (structure, *map(_kind, leaves))
        if key not in known or (is_grad_enabled() and not known[key].saw_gradients):
            known[key] = _Compiled(fn, leaves, structure, compilers)
        return known[key](leaves)

    return call


compiled_function = aot_function


def aot_module(mod: Module, *args: Any, **options: Any) -> Module:
    """Return a module that computes ``mod`` and the gradients of its parameters, as ``aot_function`` does."""

    def stateless(state: dict[str, Any], args: Any, kwargs: Any) -> Any:
        return functional_call(mod, state, args, kwargs)

    compiled = aot_function(stateless, *args, **options)

    class AOTModule(Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return compiled({**dict(mod.named_parameters()), **dict(mod.named_buffers())}, args, kwargs)

    return AOTModule()


compiled_module = aot_module


def aot_module_simplified(mod: Any, args: Sequence[Any], fw_compiler: Compiler, **options: Any) -> Callable[..., Any]:
    """Return a function of the arguments of a graph's module, as ``aot_function`` does; its parameters come first."""
    compiled = aot_module(mod, fw_compiler, **options) if isinstance(mod, Module) and [*mod.parameters()] else None
    call = aot_function(mod, fw_compiler, **options) if compiled is None else compiled
    return lambda *runtime_args: call(*_unboxed(runtime_args))


def _unboxed(args: tuple[Any, ...]) -> Sequence[Any]:
    return args[0] if len(args) == 1 and isinstance(args[0], list) else args


def aot_autograd(**options: Any) -> Callable[..., Any]:
    """Return a backend for ``torch.compile`` of compilers of forward and of backward passes, ``fw_compiler`` first."""

    def backend(gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        return aot_module_simplified(gm, example_inputs, **options)

    return backend


def memory_efficient_fusion(fn: Any, **options: Any) -> Any:
    """Return a function or a module whose passes run as graphs, as they are; ``options`` are ``aot_function``'s."""
    return aot_module(fn, nop, **options) if isinstance(fn, Module) else aot_function(fn, nop, **options)


def clear_compile_cache() -> None:
    """Accept the call and forget no graph: each compiled function keeps its own, which ends with it."""


def _kind(leaf: Any) -> Any:
    """Return what another graph is made for."""
    if not isinstance(leaf, Tensor):
        return type(leaf), repr(leaf)
    meta = leaf._meta
    return type(leaf), meta.shape, meta.strides, meta.dtype, meta.device, leaf.requires_grad


class _Compiled:
    """What the compilers have made of a function for arguments of one kind."""

    backward: Callable[..., Any]

    def __init__(self, fn: Callable[..., Any], leaves: list[Any], structure: Any, compilers: Compilers) -> None:
        self.saw_gradients = is_grad_enabled()
        self._fn, self._leaves, self._structure = fn, leaves, structure
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        given = [leaves[place] for place in self._places]
        self.wanted = [place for place, one in enumerate(given) if one.requires_grad and is_grad_enabled()]
        names = [f"arg{place}_1" for place in range(len(given))]
        graph = traced(self._results, given, names, compilers.decompositions)
        if self.tangents:
            self._compile_both(given, compilers)
        else:
            self.forward = compilers.inference(graph, given)
        self._leaves = []  # only the places of what is no tensor are asked for

    def _results(self, *tensors: Tensor) -> tuple[Any, ...]:
        """Return the tensors among the results of the function, and note what else they are."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self._structure)
        returned, self._returned = tree_flatten(self._fn(*args, **kwargs))
        self._others = [None if isinstance(one, Tensor) else (one,) for one in returned]
        results = [one for one in returned if isinstance(one, Tensor)]
        self.count = len(results)
        self.tangents = [place for place, one in enumerate(results) if one.requires_grad and self.wanted]
        self._roots = [results[place] for place in self.tangents]
        return tuple(results)

    def _compile_both(self, given: list[Tensor], compilers: Compilers) -> None:
        tangents = [shape_of(root) for root in self._roots]
        names = [f"primals_{n}" for n in range(1, len(given) + 1)]
        names += [f"tangents_{n}" for n in range(1, len(tangents) + 1)]
        graph = traced(self._joint, [*given, *tangents], names, compilers.decompositions)
        forward, backward = compilers.partition(graph, (given, tangents), num_fwd_outputs=self.count)
        self.forward = compilers.forward(forward, given)
        saved = [node for node in backward.graph.nodes if node.op == "placeholder"]
        self.backward = compilers.backward(backward, [node.meta.get("val") for node in saved])

    def _joint(self, *tensors: Tensor) -> tuple[Any, ...]:
        count = len(self._places)
        with enable_grad():
            results = self._results(*tensors[:count])
            wanted = [tensors[place] for place in self.wanted]
            found = grad(self._roots, wanted, tensors[count:], allow_unused=True)
        gradients: list[Any] = [None] * count
        for place, gradient in zip(self.wanted, found, strict=True):
            gradients[place] = gradient
        return (*results, *gradients)

    def __call__(self, leaves: list[Any]) -> Any:
        given = [leaves[place] for place in self._places]
        made = CompiledFunction.apply(self, *given) if self.tangents else self._without_gradients(given)
        results = iter([made] if isinstance(made, Tensor) else made)
        filled = [next(results) if other is None else other[0] for other in self._others]
        return tree_unflatten(filled, self._returned)

    def _without_gradients(self, given: list[Any]) -> Any:
        """Compute results that need no gradients, also where the function itself has turned them off."""
        with no_grad():
            return _called(self.forward, given)


def _called(function: Callable[..., Any], args: list[Any]) -> Any:
    return function(args) if getattr(function, "_boxed_call", False) else function(*args)


class CompiledFunction(Function):
    """A call of what compilers have made, whose gradients are computed by the other part of it."""

    @staticmethod
    def forward(ctx: Any, compiled: _Compiled, *tensors: Tensor) -> Any:
        made = _called(compiled.forward, list(tensors))
        results = made[: compiled.count]
        ctx.compiled = compiled
        ctx.save_for_backward(*made[compiled.count :])
        without = [one for place, one in enumerate(results) if place not in compiled.tangents]
        ctx.mark_non_differentiable(*without)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        tangents = [gradients[place] for place in ctx.compiled.tangents]
        return None, *_called(ctx.compiled.backward, [*ctx.saved_tensors, *tangents])
