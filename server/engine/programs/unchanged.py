"""A recorded list of operations as it is: each step is the plan that executed it, and nothing is optimised.

Results are those of the recorded operations to the bit, and making such an executable takes a few microseconds for each
step, so that it pays for what comes again a few times only.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.engine import context
from server.engine.context import Held
from server.engine.plan import Plan
from telegrad_protocol.meta import Device, Meta

from .executable import Description, Executable, Places
from .execution import Call
from .graph import Graph, text_of

_CALL_BYTES = 1000
"""What the host holds for a step, its arguments and its place among the values."""


def unchanged(graph: Graph, plans: Sequence[Plan], known: Sequence[Meta | type]) -> Executable:
    """Return what executes a graph whose steps were executed by ``plans``, for inputs of these metas."""
    places = Places(graph.inputs)
    calls = []
    for step, plan, freed in zip(graph.steps, plans, graph.freed, strict=True):
        take, outs = places.take(step.args), tuple([places.of(slot) for slot in step.outs])
        is_one = plan.count == 1 and len(outs) == 1
        gone = tuple([places.of(slot) for slot in freed])
        calls.append(Call(plan.run, take, outs[0] if is_one else -1, () if is_one else outs, gone))
    outputs = [places.of(slot) for slot in graph.outputs]
    held = Held(context.current.host_memory, len(calls) * _CALL_BYTES)
    return Executable(calls, places.initial, known, outputs, _described(graph), held, _devices(plans, known))


def _devices(plans: Sequence[Plan], known: Sequence[Meta | type]) -> frozenset[Device]:
    metas = [meta for meta in known if isinstance(meta, Meta)]
    return frozenset([meta.device for meta in (*metas, *[out for plan in plans for out in plan.outs or ()])])


def _described(graph: Graph) -> Description:
    kernels = sum([step.operator.op.view_of is None for step in graph.steps])
    text = "\n".join(map(text_of, graph.steps))
    return Description(len(graph.steps), kernels, kernels, 0, 0, 0, (), 0, 0, text)
