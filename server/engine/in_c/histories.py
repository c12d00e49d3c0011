"""Histories of operations, and the derivatives of nodes, in C where that is compiled: as in `autograd`.

Knows no operations, and nothing of how a graph is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.engine import keys, view_plan
from server.engine.autograd import changes, graph_task, node_program
from server.engine.autograd.graph import UNRECORDED, AccumulateGrad, Edge, Node, SavedOutput, SavedTensor, next_sequence
from server.engine.autograd.graph_task import GraphTask
from server.engine.autograd.inplace import edge_of as edge_in_python
from server.engine.autograd.node import GradientPlan, OpNode, _fit_all, fit_gradient
from server.engine.autograd.node_program import NodeProgram
from server.engine.device import cancellation
from server.engine.in_c.values import module
from server.engine.operators import Run
from server.engine.value import TRACKED, UNTRACKED, AutogradMeta, Value
from telegrad_protocol.meta import Meta

_MOST_POSITIONS: Final = 60
"""Operands at places beyond are not told apart by the bits of a number of C."""
apply_in_python: Final = OpNode.apply
"""Does what nodes do where nothing is in C, and whatever is unusual where something is."""
apply_program_in_python: Final = node_program.apply
"""Does what nodes do by their programs where nothing is in C."""


edge_of: Final[Callable[[Value], Edge | None]] = edge_in_python if module is None else module.edge_of
"""Returns where gradients of a value flow, as ``inplace.edge_of`` does; not to be called before ``prepare``."""


def prepare(save_list: Callable[..., Any]) -> None:
    """Let nodes compute gradients in C; called once, with what saves lists of operands."""
    if module is None:
        return
    classes = (OpNode, GradientPlan, SavedTensor, SavedOutput, AutogradMeta)
    OpNode.apply = module.prepare_autograd({  # type: ignore[method-assign]
        **{kind.__name__: kind for kind in classes}, "apply": apply_in_python, "fit_gradient": fit_gradient,
        "fit_all": _fit_all, "edge_of": edge_in_python, "save_list": save_list,
        "next_sequence": next_sequence, "unrecorded": UNRECORDED, "autograd_key": keys.AUTOGRAD,
    })  # fmt: skip
    kinds = (NodeProgram, Node, AccumulateGrad, GraphTask)
    module.prepare_node_programs({
        **{kind.__name__: kind for kind in kinds}, "learn": node_program.learn, "add": node_program.add,
        "additions": node_program.additions, "cancellation": vars(cancellation), "changes": vars(changes),
    })  # fmt: skip
    node_program.apply, node_program.drain_in_c = module.apply_program, module.drain
    module.prepare_views({
        "view": view_plan.view, "tracked": TRACKED, "untracked": UNTRACKED,
    })  # fmt: skip
    view_plan.view_in_c = module.bound_to_view
    graph_task.count_gradients = module.count_gradients


def recording_of(
    positions: tuple[int, ...], plans: dict[int, GradientPlan], below: Run, metas: tuple[Meta, ...], is_float: bool,
    make_plan: Callable[[int, tuple[Any, ...]], GradientPlan],
) -> Run | None:  # fmt: skip
    """Return what executes an operation of one result ``below``, and attaches a node; None where that is Python's.

    ``positions`` are those of the tensors that can be differentiated, none of which is a list; ``make_plan`` gives the
    plan of the gradients at some of them, told by a bit each, where ``plans`` has none.
    """
    if module is None or max(positions, default=0) > _MOST_POSITIONS:
        return None
    return module.bound_to_recording((positions, plans, below, metas, is_float, make_plan))  # type: ignore[no-any-return]
