"""Checkpoints: parts of a model whose intermediate results are computed again in the backward pass, not kept."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import finalize

from telegrad._session.current import current_session
from telegrad._session.grad_mode import enable_grad, is_grad_enabled, set_grad_enabled
from telegrad._session.own_code import note
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import set_autocast, thread
from telegrad._tensor.autograd_graph import LeafNode, reachable
from telegrad._tensor.tensor import Tensor
from telegrad.autograd import backward, grad
from telegrad.autograd._client_pass import running
from telegrad.autograd.function import Function
from telegrad_protocol.errors import ArgumentError, AutogradError
from telegrad_protocol.messages import RandomState

from ._selective_checkpoint import (
    CheckpointPolicy,
    DefaultDeviceType,
    GraphExecGroup,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
    get_device_states,
    set_device_states,
)

__all__ = [
    "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "DefaultDeviceType", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "detach_variable", "get_device_states", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip


class CheckpointError(AutogradError):
    """What a checkpoint computes again is not what it computed first."""


def noop_context_fn() -> tuple[Any, Any]:
    """Return two contexts that do nothing: for the first computation and for the second."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Do nothing in this block: errors of a checkpoint name the program's lines anyway."""
    yield


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Do nothing in this block: a checkpoint is computed again to its end."""
    yield


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with tensors without history that require gradients as the given ones do."""
    return tuple([_leaf(argument) if isinstance(argument, Tensor) else argument for argument in inputs])


def _leaf(tensor: Tensor) -> Tensor:
    leaf: Tensor = tensor.detach()
    return leaf.requires_grad_() if tensor.requires_grad else leaf


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no argument requires a gradient, so that a reentrant checkpoint has none."""
    if not any(isinstance(argument, Tensor) and argument.requires_grad for argument in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class _Surroundings:
    """What a computation depends on beside its arguments: random state and autocast, to be had again later."""

    def __init__(self, session: ClientSession, preserve_rng_state: bool) -> None:
        self._session = session
        self._autocast = thread.autocast
        self._random = _keep_random_state(session, self) if preserve_rng_state else None

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Compute in the surroundings of that time in this block."""
        modes, autocast = thread.modes, thread.autocast
        now = None
        if self._random is not None:
            now = self._session.new_id()
            self._session.submit(RandomState(now, False), modes)
            self._session.submit(RandomState(self._random, True), modes)
        set_autocast(self._autocast)
        try:
            yield
        finally:
            thread.modes, thread.autocast = modes, autocast
            if now is not None:
                self._session.submit(RandomState(now, True), modes)
                self._session.free(now)


def _keep_random_state(session: ClientSession, owner: Any) -> int:
    number = session.new_id()
    session.submit(RandomState(number, False), thread.modes)
    finalize(owner, session.free, number)
    return number


class CheckpointFunction(Function):
    """The reentrant checkpoint: its backward pass makes a whole pass of its own, which accumulates into leaves."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(_session_of(args), preserve_rng_state)
        ctx.places = [place for place, argument in enumerate(args) if isinstance(argument, Tensor)]
        ctx.inputs = [None if isinstance(argument, Tensor) else argument for argument in args]
        ctx.save_for_backward(*[args[place] for place in ctx.places])
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        if running.innermost is not None and running.innermost.has_inputs:
            raise AutogradError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.inputs)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[place] = tensor
        detached = detach_variable(tuple(inputs))
        with ctx.surroundings.restored(), enable_grad():
            outputs = ctx.run_function(*detached)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [
            (output, given)
            for output, given in zip(outputs, args, strict=True)
            if isinstance(output, Tensor) and output.requires_grad
        ]
        if not pairs:
            raise AutogradError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([output for output, _ in pairs], [given for _, given in pairs])
        return (None, None, *[i.grad if isinstance(i, Tensor) else None for i in detached])


@contextlib.contextmanager
def _without_hooks_of(leaves: Iterable[Tensor]) -> Iterator[None]:
    """Have the one pass that begins in this block call no hooks of these leaves: it computes parts of gradients."""
    running.hookless = frozenset([leaf._gradient_edge() for leaf in leaves])
    try:
        yield
    finally:
        running.hookless = frozenset()


class _Recomputed(Function):
    """The other checkpoint: the gradients of the arguments, and of all leaves that the function used, flow on."""

    _has_no_jvp = False
    _checks_saved = False

    @staticmethod
    def forward(ctx: Any, run: _Run, values: tuple[Tensor, ...], *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*sources)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *ctx.run.gradients(ctx.saved_tensors, grads))


class _Differentiated(Function):
    """The gradients that a second computation has, as results of what it began with: they are differentiated again."""

    _has_no_jvp = False

    @staticmethod
    def forward(ctx: Any, computation: _Computation, *origins: Tensor) -> tuple[Tensor, ...]:
        ctx.computation = computation
        ctx.set_materialize_grads(False)
        return tuple([output.detach() for output in computation.outputs])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.computation.gradients(grads))


class _Computation(NamedTuple):
    """Something that was computed from leaves of its own, so that no pass over it goes on to what is outside.

    ``origins`` are what ``inputs`` stand for outside. ``leaves`` are those of the program that it used, and that are
    among both; their hooks are called by the pass outside, once all parts of their gradients are there.
    """

    outputs: list[Tensor]
    inputs: list[Tensor]
    origins: list[Tensor]
    leaves: list[Tensor]

    def gradients(self, given: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of the origins; None for what none reaches. They have a history if that is wanted."""
        pairs = [
            (output, gradient)
            for output, gradient in zip(self.outputs, given, strict=True)
            if gradient is not None and output.requires_grad
        ]
        records = is_grad_enabled()
        starts = [_leaf(one) if records else one.detach() for _, one in pairs]
        if not pairs:
            return [None] * len(self.inputs)
        with _without_hooks_of(self.leaves):
            made = grad(
                [output for output, _ in pairs], self.inputs, starts, retain_graph=True, create_graph=records,
                allow_unused=True,
            )  # fmt: skip
        return self._joined(made, starts, [one for _, one in pairs]) if records else list(made)

    def _joined(
        self, made: Sequence[Tensor | None], starts: list[Tensor], given: list[Tensor]
    ) -> list[Tensor | None]:  # fmt: skip
        """Return gradients with what they were computed from outside as their history."""
        outputs = [one for one in made if one is not None and one.requires_grad]
        if not outputs:
            return list(made)
        origins = [*self.origins, *[one for one in given if one.requires_grad]]
        inputs = [*self.inputs, *[start for start in starts if start.requires_grad]]
        computation = _Computation(outputs, inputs, origins, self.leaves)
        joined = iter(_Differentiated.apply(computation, *origins))
        return [next(joined) if one is not None and one.requires_grad else one for one in made]


class _Run:
    """One call of a checkpointed function: its arguments, how to make it again, and which results have gradients."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], surroundings: _Surroundings,
        again: Any, checks_metas: bool,
    ) -> None:  # fmt: skip
        self._function = function
        self._surroundings = surroundings
        self._again = again
        self._checks_metas = checks_metas
        self.sources: list[Tensor] = []
        """The tensors among the arguments that require a gradient."""
        self._args = _mapped((args, kwargs), self._noted)
        self.outputs: list[int] = []

    def _noted(self, tensor: Tensor) -> Any:
        if not tensor.requires_grad:
            return tensor
        self.sources.append(tensor)
        return _Place(len(self.sources) - 1)

    def call(self, sources: Sequence[Tensor]) -> Any:
        args, kwargs = _mapped(self._args, lambda place: sources[place.number], _Place)
        return self._function(*args, **kwargs)

    def gradients(self, saved: Sequence[Tensor], grads: Sequence[Any]) -> list[Any]:
        """Compute the function again, and return the gradients of what it was computed from."""
        count = len(self.sources)
        sources, others = [_leaf(tensor) for tensor in saved[:count]], list(saved[count:])
        with self._surroundings.restored(), self._again, set_grad_enabled(True):
            tensors: list[Tensor] = []
            _mapped(self.call(sources), tensors.append)
        if len(tensors) != self.count or (self._checks_metas and [t._meta for t in tensors] != self.metas):
            raise CheckpointError(
                "checkpoint: recomputed values have different metadata than during the forward pass; the function must "
                "compute the same each time"
            )
        outputs = [tensors[place] for place in self.outputs]
        return _Computation(outputs, [*sources, *others], list(saved), others).gradients(grads)

    def first(self, context: Any) -> Any:
        """Compute the function, and return its results with one node as their history."""
        leaves = [_leaf(tensor) for tensor in self.sources]
        with context:
            result = self.call(leaves)
        tensors: list[Tensor] = []
        _mapped(result, tensors.append)
        self.count, self.metas = len(tensors), [tensor._meta for tensor in tensors]
        self.outputs = [place for place, tensor in enumerate(tensors) if tensor.requires_grad]
        if not self.outputs:
            return result
        own = {leaf._gradient_edge() for leaf in leaves}
        reached = reachable([tensors[place]._gradient_edge() for place in self.outputs])
        used = [node.tensor() for node in reached if isinstance(node, LeafNode) and node not in own]
        others = sorted([leaf for leaf in used if leaf is not None], key=lambda leaf: int(leaf._id))
        values = tuple([tensors[place].detach() for place in self.outputs])
        results = dict(zip(self.outputs, _Recomputed.apply(self, values, *self.sources, *others), strict=True))
        places = iter(range(len(tensors)))

        def replaced(tensor: Tensor) -> Tensor:
            result: Tensor = results.get(next(places), tensor)
            return result

        return _mapped(result, replaced)


class _Place:
    """Stands in the arguments for a tensor that requires a gradient."""

    def __init__(self, number: int) -> None:
        self.number = number


def _mapped(value: Any, change: Callable[[Any], Any], kind: type = Tensor) -> Any:
    """Return dicts, lists and tuples with what ``change`` makes of everything of this kind in them, in order."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        changed = {key: _mapped(item, change, kind) for key, item in value.items()}
        return changed if type(value) is dict else type(value)(changed)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_mapped(item, change, kind) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(item, change, kind) for item in value])
    return value


def _session_of(args: Iterable[Any]) -> ClientSession:
    for argument in args:
        if isinstance(argument, Tensor):
            return argument._session
    return current_session()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function(*args, **kwargs)``; what it keeps for the backward pass is computed again there.

    With ``use_reentrant`` that pass accumulates into leaves by itself, and only tensors that are arguments by
    themselves get gradients otherwise; without, gradients flow as if there were no checkpoint. The random state is the
    same the second time, unless ``preserve_rng_state=False``.
    """
    preserve = bool(kwargs.pop("preserve_rng_state", True))
    if use_reentrant is None:
        note(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is "
            "recommended, and what is done without it here"
        )
    if use_reentrant:
        if kwargs:
            raise ArgumentError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ArgumentError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ArgumentError(f"determinism_check should be one of ['default', 'none'], got {determinism_check}")
    first, again = context_fn()
    if not is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    surroundings = _Surroundings(_session_of([*args, *kwargs.values()]), preserve)
    return _Run(function, args, kwargs, surroundings, again, determinism_check == "default").first(first)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Call functions, or the modules of a ``Sequential``, one after another; segments but the last are checkpoints."""
    preserve = bool(kwargs.pop("preserve_rng_state", True))
    if kwargs:
        raise ArgumentError("Unexpected keyword arguments: " + ",".join(kwargs))
    children = getattr(functions, "children", None)
    chain = list(children()) if children is not None else list(functions)

    def segment(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for step in chain[start:end]:
                value = step(value)
            return value

        return run

    size = len(chain) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(segment(start, end), input, use_reentrant=bool(use_reentrant), preserve_rng_state=preserve)
    return segment(end, len(chain))(input)
