"""``aot_export_module`` and its like: the graph of a function's passes, and what its inputs and outputs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.autograd import grad
from telegrad.func import functional_call
from telegrad.fx.experimental.proxied import shape_of, traced
from telegrad.fx.graph_module import GraphModule
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import tree_leaves
from telegrad_protocol.errors import ArgumentError


@dataclass
class BackwardSignature:
    """Which outputs of a graph are gradients of what, and of which output."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class GraphSignature:
    """What the inputs and outputs of a graph are, by their names: parameters, buffers, arguments and results."""

    parameters: list[str]
    buffers: list[str]
    user_inputs: list[str]
    user_outputs: list[str]
    inputs_to_parameters: dict[str, str]
    inputs_to_buffers: dict[str, str]
    buffers_to_mutate: dict[str, str] = field(default_factory=dict)
    parameters_to_mutate: dict[str, str] = field(default_factory=dict)
    user_inputs_to_mutate: dict[str, str] = field(default_factory=dict)
    in_spec: Any = None
    out_spec: Any = None
    backward_signature: BackwardSignature | None = None


def aot_export_joint_simple(
    func: Callable[..., Any], args: Sequence[Any], *, trace_joint: bool, num_params_buffers: int = 0,
    decompositions: Any = None,
) -> GraphModule:  # fmt: skip
    """Return the graph of a function of tensors; with ``trace_joint`` of its gradients, too, as ``primals`` and
    ``tangents``.
    """
    if not trace_joint:
        with no_grad():
            names = [f"arg{place}_1" for place in range(len(args))]
            return traced(lambda *given: tuple(tree_leaves(func(*given))), list(args), names, decompositions)
    roots: list[Tensor] = []

    def outputs(*given: Any) -> tuple[Any, ...]:
        results = tuple(tree_leaves(func(*given)))
        roots[:] = [one for one in results if one.requires_grad]
        return results

    traced(outputs, list(args), [f"arg{place}_1" for place in range(len(args))], decompositions)
    tangents = [shape_of(root) for root in roots]

    def joint(*given: Any) -> tuple[Any, ...]:
        with enable_grad():
            results = outputs(*given[: len(args)])
            return (*results, *_gradients(roots, given[: len(args)], given[len(args) :]))

    names = [f"primals_{place}" for place in range(1, len(args) + 1)]
    names += [f"tangents_{place}" for place in range(1, len(tangents) + 1)]
    return traced(joint, [*args, *tangents], names, decompositions)


def _gradients(roots: Sequence[Tensor], inputs: Sequence[Any], tangents: Sequence[Any] | None) -> list[Any]:
    """Return the gradients of inputs, None for those that need none."""
    wanted = [one for one in inputs if one.requires_grad]
    found = iter(grad(roots, wanted, tangents, allow_unused=True))
    return [next(found) if one.requires_grad else None for one in inputs]


def aot_export_module(
    mod: Module, args: Sequence[Any], *, decompositions: Any = None, trace_joint: bool,
    output_loss_index: int | None = None, **options: Any,
) -> tuple[GraphModule, GraphSignature]:  # fmt: skip
    """Return the graph of a module that returns a tuple, with parameters and buffers as its first inputs.

    With ``trace_joint`` the graph returns the gradients of parameters and arguments, too, of the output that
    ``output_loss_index`` says. Raises ArgumentError for a module that returns no tuple.
    """
    parameters, buffers = dict(mod.named_parameters()), dict(mod.named_buffers())
    state = {**parameters, **buffers}
    given = [*state.values(), *args]
    loss_index = output_loss_index or 0

    def outputs(*tensors: Any) -> tuple[Any, ...]:
        results = functional_call(mod, dict(zip(state, tensors)), tuple(tensors[len(state) :]))
        if not isinstance(results, tuple):
            raise ArgumentError(
                "Graph output must be a (). This is so that we can avoid pytree processing of the outputs. Please "
                "change the module to have tuple outputs or use aot_module instead."
            )
        return results

    def joint(*tensors: Any) -> tuple[Any, ...]:
        with enable_grad():
            results = outputs(*tensors)
            found = _gradients([results[loss_index]], tensors, None)
        detached = [one.detach() for one in results]
        return (*detached, *[one for one in found if one is not None])

    names = [f"arg{place}_1" for place in range(len(given))]
    if trace_joint:
        graph = traced(joint, given, names, decompositions)
    else:
        with no_grad():
            graph = traced(outputs, given, names, decompositions)
    return graph, _signature(graph, parameters, buffers, given, loss_index if trace_joint else None)


def _signature(
    graph: GraphModule, parameters: dict[str, Any], buffers: dict[str, Any], given: Sequence[Any],
    loss_index: int | None,
) -> GraphSignature:  # fmt: skip
    inputs = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    output: Any = graph.graph.output_node()
    returned = [str(node) for node in output.args[0]]
    count = len(parameters) + len(buffers)
    of_inputs = [name for name, one in zip(inputs, given, strict=True) if one.requires_grad]
    results = returned if loss_index is None else returned[: len(returned) - len(of_inputs)]
    made = GraphSignature(
        [*parameters], [*buffers], inputs[count:], results,
        dict(zip(inputs, parameters)), dict(zip(inputs[len(parameters) : count], buffers)),
    )  # fmt: skip
    if loss_index is not None:
        gradients = list(zip(returned[len(results) :], of_inputs, strict=True))
        own = made.inputs_to_parameters
        made.backward_signature = BackwardSignature(
            {gradient: own[name] for gradient, name in gradients if name in own},
            {gradient: name for gradient, name in gradients if name not in own},
            results[loss_index],
        )
    return made
