"""Functions and modules whose forward and backward passes are CUDA graphs, with autograd through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.amp.autocast_mode import is_autocast_cache_enabled, is_autocast_enabled
from telegrad.autograd import Function, grad
from telegrad.autograd.function import once_differentiable
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .captures import CUDAGraph, PoolId, graph


class SampleTypeError(ArgumentTypeError, AssertionError):
    """A sample argument is no tensor; PyTorch asserts that they are."""


class UngraphableModuleError(ArgumentError, AssertionError):
    """A module has hooks, or buffers that require gradients; PyTorch asserts that it has none."""


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
    pool: PoolId | None = None,
) -> Any:  # fmt: skip
    """Capture functions or modules on samples of their arguments; returns functions that replay, and modules changed.

    Arguments are tensors, also in tuples, lists and dictionaries, and later ones have the samples' shapes and types.
    Several callables run in the order in which they are given, forward, and in the opposite one, backward: their graphs
    share memory. A module replays while it is in the mode, training or not, that it was captured in. Parameters get
    gradients as ever.
    """
    if is_autocast_enabled() and is_autocast_cache_enabled():
        raise ArgumentError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    is_single = not isinstance(callables, tuple)
    listed = (callables,) if is_single else callables
    samples = (sample_args,) if is_single else sample_args
    if not isinstance(samples, tuple) or len(samples) != len(listed):
        raise ArgumentError("make_graphed_callables: give a tuple of sample arguments for each callable")
    units = [_Unit(called, args, allow_unused_input) for called, args in zip(listed, samples, strict=True)]
    for unit in units:
        unit.warm_up(num_warmup_iters)
    for unit in units:
        pool = unit.capture_forward(pool)
    for unit in reversed(units):
        unit.capture_backward(pool)
    graphed = tuple([unit.graphed() for unit in units])
    return graphed[0] if is_single else graphed


class _Unit:
    """One callable: its static inputs and outputs, their gradients, and the graphs of both passes."""

    def __init__(self, called: Any, args: Any, allow_unused: bool) -> None:
        self.called = called
        self._is_module = hasattr(called, "parameters") and hasattr(called, "forward")
        self._args = args if isinstance(args, tuple) else (args,)
        self.given = list(_leaves(self._args))
        if not all([isinstance(arg, Tensor) for arg in self.given]):
            raise SampleTypeError("make_graphed_callables: sample arguments must contain only tensors")
        self._allow_unused = allow_unused
        if self._is_module:
            _check_module(called)
        self.parameters: list[Any] = list(called.parameters()) if self._is_module else []
        self.inputs: list[Any] = [*self.given, *self.parameters]
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        self.result: Any = None
        self.outputs: list[Any] = []
        self.out_gradients: list[Any] = []
        """Static memory for the gradients of outputs; None for those that need none."""
        self.gradients: list[Any] = [None] * len(self.inputs)
        """Where the backward graph leaves the gradients of inputs; None for those that have none."""
        self.shared: set[int] = set()
        """Numbers of parameters whose ``grad`` may lie where the backward graph leaves it."""

    def warm_up(self, times: int) -> None:
        """Run both passes, so that everything that is made once is there."""
        for _ in range(times):
            self.outputs = list(_leaves(self._call()))
            self._make_out_gradients()
            self._differentiate()

    def _call(self) -> Any:
        with enable_grad():
            return self.called(*self._args)

    def _make_out_gradients(self) -> None:
        self.out_gradients = [
            function("zeros_like")(output.detach()) if output.requires_grad else None for output in self.outputs
        ]

    def _differentiate(self) -> list[Any]:
        """Return the gradients of the inputs, given those of the outputs."""
        roots = [output for output in self.outputs if output.requires_grad]
        wanted = [tensor for tensor in self.inputs if tensor.requires_grad]
        if not roots or not wanted:
            return [None] * len(self.inputs)
        given = [gradient for gradient in self.out_gradients if gradient is not None]
        found = iter(grad(roots, wanted, given, allow_unused=self._allow_unused))
        return [next(found) if tensor.requires_grad else None for tensor in self.inputs]

    def capture_forward(self, pool: PoolId | None) -> PoolId:
        """Capture the forward pass; returns the id of its memory."""
        with graph(self.forward, pool=pool):
            self.result = self._call()
        self.outputs = list(_leaves(self.result))
        return self.forward.pool()

    def capture_backward(self, pool: PoolId | None) -> None:
        """Capture the backward pass, where there is one."""
        self._make_out_gradients()
        if any([gradient is not None for gradient in self.out_gradients]):
            with graph(self.backward, pool=pool):
                self.gradients = self._differentiate()

    def replay_forward(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute the outputs of these arguments."""
        with no_grad():
            for static, argument in zip(self.given, given):
                if static is not argument:
                    static.copy_(argument)
        self.forward.replay()
        return tuple([output.detach() for output in self.outputs])

    def replay_backward(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute the gradients of the inputs, given those of the outputs."""
        self._part_gradients()
        for static, gradient in zip(self.out_gradients, gradients, strict=True):
            if static is not None:
                static.zero_() if gradient is None else static.copy_(gradient)
        self.backward.replay()
        return tuple([None if gradient is None else gradient.detach() for gradient in self.gradients])

    def _part_gradients(self) -> None:
        """Copy gradients that the replay would overwrite, where they are accumulated: the first one is not copied."""
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                self.shared.add(number)
            elif number in self.shared:
                self.shared.discard(number)
                parameter.grad = parameter.grad.clone()

    def graphed(self) -> Any:
        """Return the function that replays; for a module the module itself, whose ``forward`` does."""
        run = _replaying(self)
        if not self._is_module:
            return run
        module, mode, plain = self.called, self.called.training, self.called.forward
        module.forward = lambda *args: run(*args) if module.training is mode else plain(*args)
        return module


def _replaying(unit: _Unit) -> Callable[..., Any]:
    class Graphed(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            return unit.replay_forward(inputs[: len(unit.given)])

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *gradients: Any) -> Any:
            return unit.replay_backward(gradients)

    def run(*args: Any) -> Any:
        given = list(_leaves(args))
        if len(given) != len(unit.given):
            raise ArgumentError(f"graphed callable: captured with {len(unit.given)} tensors, got {len(given)}")
        return _filled(unit.result, iter(Graphed.apply(*given, *unit.parameters)))

    return run


def _check_module(module: Any) -> None:
    hooks = (module._backward_hooks, module._forward_hooks, module._forward_pre_hooks)
    if any(map(len, hooks)):
        raise UngraphableModuleError(
            "make_graphed_callables: modules must not have hooks registered at the time they are passed; register "
            "them afterwards"
        )
    if any([buffer.requires_grad for buffer in module.buffers()]):
        raise UngraphableModuleError(
            "make_graphed_callables: in modules only parameters may require gradients, not buffers"
        )


def _leaves(structure: Any) -> Iterator[Any]:
    """Yield what is in tuples, lists and dictionaries."""
    if isinstance(structure, (tuple, list)):
        for item in structure:
            yield from _leaves(item)
    elif isinstance(structure, dict):
        yield from _leaves(list(structure.values()))
    else:
        yield structure


def _filled(structure: Any, leaves: Iterator[Any]) -> Any:
    """Return a structure like this one with other leaves."""
    if isinstance(structure, dict):
        return {key: _filled(item, leaves) for key, item in structure.items()}
    if isinstance(structure, (tuple, list)):
        items = [_filled(item, leaves) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return next(leaves)
