"""Passes over graphs, as in PyTorch: partitions that a backend supports, orders of passes, splits, fake results."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
import torch.hub

from .twins import assert_same, evaluate

PROLOGUE = """
import operator
from importlib import import_module
fx = import_module(t.__name__ + ".fx")
def of(path):
    return import_module(t.__name__ + ".fx.passes." + path)
support, partitioner, fuser = of("operator_support"), of("infra.partitioner"), of("utils.fuser_utils")
base, manager = of("infra.pass_base"), of("infra.pass_manager")
x = t.tensor([1.0, 2.0])
def is_sum(modules, node):
    return node.op == "call_function" and node.target in (operator.add, t.add)
def is_call(modules, node):
    return node.op in ("call_function", "call_module")
def parted(function, supported=is_sum, single=True, **options):
    traced = fx.symbolic_trace(function)
    made = partitioner.CapabilityBasedPartitioner(
        traced, support.create_op_support(supported), allows_single_node_partition=single, **options
    )
    names = [sorted(node.name for node in one.nodes) for one in made.propose_partitions()]
    fused = made.partition_and_fuse()
    parts = [(name, type(one).__name__, getattr(one, "code", "")) for name, one in fused.named_children()]
    return names, fused.code, parts, fused(x) if not isinstance(function, t.nn.Module) else 0
def failing(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error).partition(" at 0x")[0]
"""


@pytest.fixture(autouse=True)
def _no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep PyTorch's interpreter from starting a thread that watches a bar of progress nobody sees."""
    monkeypatch.setattr(torch.hub.tqdm, "monitor_interval", 0, raising=False)


PARTED = [
    "lambda x: ((x + 1) + 2) * 3 + 4",
    "lambda x: ((x + 1) + 2) * 3 + 4, is_sum, False",
    "lambda x: (x + 1) * ((x + 2) * 3 + 4)",
    "diamond",
    "lambda x: (x + 1) * (x + 2)",
    "lambda x: (x + 1).sin() * ((x + 1) + 2)",
    "Layers(), is_call",
    "largest, is_call, False, non_compute_ops=['_operator.getitem']",
    "lambda x: (x + 1) * 2 + (x * 3 + 4) * (x + 5), is_sum, False, allowed_single_node_partition_ops=['_operator.add']",
    "lambda x: x * 2",
]


@pytest.mark.parametrize("arguments", PARTED)
def test_what_a_backend_supports_is_fused(tg: Any, arguments: str) -> None:
    program = f"""
def diamond(x):
    a = x + 1
    return a * 2 + a
def largest(x):
    a, b = t.max(x, 0)
    return a + 1 + b
class Layers(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.w = t.nn.Linear(2, 2), t.nn.Parameter(t.ones(2))
    def forward(self, x):
        return self.l(x) + self.w + 1
parted({arguments})
"""
    ours, theirs = evaluate(PROLOGUE + program, tg)
    assert not isinstance(theirs, Exception), theirs
    assert_same(ours, theirs)


PROGRAMS = {
    "partitions of nodes that a program chooses": """
        traced = fx.symbolic_trace(lambda x: (x + 1) * 2 - 3)
        def chosen(*names):
            return [{n: None for n in traced.graph.nodes if n.name in names}]
        refused = failing(lambda: fuser.fuse_by_partitions(traced, chosen("add", "sub")))
        (refused, fuser.fuse_by_partitions(traced, chosen("add", "mul"), "part_").code)
    """,
    "support by names and types": """
        traced = fx.symbolic_trace(lambda x: (x + 1) * x)
        of("shape_prop").ShapeProp(traced).propagate(x)
        def asked(one):
            return [one.is_node_supported({}, node) for node in traced.graph.nodes]
        adds = support.OperatorSupport({"_operator.add": None})
        of_floats = support.OperatorSupport({"_operator.mul": (([t.float32], [t.float32]), {})})
        of_ints = support.OperatorSupport({"_operator.mul": (([t.int64], [t.int64]), {})})
        others = support.OpSupports.decline_if_node_in_names({"add"})
        no_floats = support.OpSupports.decline_if_input_dtype(t.float32)
        both, either = support.chain(adds, others), support.any_chain(adds, others)
        [asked(one) for one in (adds, of_floats, of_ints, others, no_floats, both, either)]
    """,
    "passes run until they change nothing": """
        told = []
        class Noting(base.PassBase):
            def requires(self, module): told.append("requires")
            def call(self, module):
                told.append("call")
                return base.PassResult(module, told.count("call") < 3)
            def ensures(self, module): told.append("ensures")
        traced = fx.symbolic_trace(lambda x: x + 1)
        result = manager.PassManager([Noting()], steps=5)(traced)
        (result.modified, told, Noting()(traced).modified)
    """,
    "passes come in the order of their constraints": """
        def a(module): return base.PassResult(module, False)
        def b(module): return base.PassResult(module, False)
        def c(module): return base.PassResult(module, False)
        before = manager.this_before_that_pass_constraint
        run = manager.PassManager([a, b, c], constraints=[before(b, a), before(c, b)])
        run(fx.symbolic_trace(lambda x: x + 1))
        circle = manager.PassManager([a, b], constraints=[before(a, b), before(b, a)])
        ([one.__name__ for one in run.passes], failing(lambda: circle(fx.symbolic_trace(lambda x: x)))[0])
    """,
    "passes that fail are named with those before them": """
        def good(module): return base.PassResult(module, False)
        def bad(module): raise ValueError("no")
        def odd(module): return 3
        traced = fx.symbolic_trace(lambda x: x + 1)
        calls = [lambda one=one: manager.PassManager([good, one])(traced) for one in (bad, odd)]
        [*map(failing, calls), failing(lambda: manager.PassManager().add_checks(lambda a, b: 1))]
    """,
    "functions become passes, and modules are checked": """
        told = []
        def rewritten(module):
            for node in module.graph.nodes:
                if node.name == "add":
                    node.target = operator.mul
        run = manager.PassManager([manager.pass_result_wrapper(rewritten)], run_checks_after_each_pass=True)
        run.add_checks(lambda module: told.append(len(module.graph.nodes)))
        result = run(fx.symbolic_trace(lambda x: x + 3))
        (result.modified, result.graph_module(x), told)
    """,
    "the earlier manager calls functions in the order of the list": """
        earlier, told = of("pass_manager"), []
        def a(given): return given + ["a"]
        def b(given): return given + ["b"]
        run = earlier.PassManager([a, b], [earlier.this_before_that_pass_constraint(a, b)])
        wrong = earlier.PassManager([a, b], [earlier.this_before_that_pass_constraint(b, a)])
        looped = earlier.loop_pass(a, n_iter=3)
        kept = earlier.inplace_wrapper(lambda given: given.append("c"))
        (run([]), failing(lambda: wrong([]))[0], looped([]), kept(["x"]), failing(lambda: earlier.loop_pass(a))[0])
    """,
    "a module is split by tags": """
        class Layers(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.l, self.w = t.nn.Linear(2, 2), t.nn.Parameter(t.ones(2))
                self.sub = t.nn.Sequential(t.nn.ReLU())
            def forward(self, x, y):
                a = self.l(x) + self.w
                b = self.sub(a) * y
                return a - b, b
        traced = fx.symbolic_trace(Layers())
        for node in traced.graph.nodes:
            if node.op not in ("placeholder", "get_attr", "output"):
                node.tag = "first" if node.name in ("l", "add") else "second"
        split = of("split_utils").split_by_tags(traced, ["first", "second"])
        names = sorted(name for name, _ in split.named_parameters())
        of("split_utils").setattr_recursive(split, "first.l.note", 3)
        (split.code, split.first.code, split.second.code, names, split.first.l.note)
    """,
    "graphs are modules of their own, and are compared": """
        common = of("utils.common")
        graphs = [fx.symbolic_trace(f).graph for f in (lambda a: a + 1, lambda b: b + 1, lambda a: a * 1)]
        traced = fx.symbolic_trace(t.nn.Sequential(t.nn.Linear(2, 2), t.nn.ReLU()))
        lifted, paths = common.lift_subgraph_as_module(traced, traced.graph, "part")
        holder = common.HolderModule({"a": t.nn.ReLU()})
        ([common.compare_graphs(graphs[0], other) for other in graphs], paths, str(holder), lifted.code)
    """,
    "fake results are noted without computing": """
        traced = fx.symbolic_trace(lambda x: (x @ x.t()).sum(0))
        result = of("fake_tensor_prop").FakeTensorProp(traced).propagate(t.ones(2, 3))
        noted = [(n.name, tuple(n.meta["val"].shape)) for n in traced.graph.nodes if "val" in n.meta]
        (type(result).__name__, noted)
    """,
    "what nodes call is named": """
        common = of("tools_common")
        traced = fx.symbolic_trace(lambda x: (x + 1).sin())
        layers = fx.symbolic_trace(t.nn.Sequential(t.nn.Linear(2, 2)))
        calls = [n for g in (traced, layers) for n in g.graph.nodes if n.op in common.CALLABLE_NODE_OPS]
        parts = dict(layers.named_modules())
        [common.get_node_target(parts, node) for node in calls]
    """,
    "graphs are put in order": """
        def branching(x):
            a = x.sin().cos()
            b = x.tan() + a
            return b * x.exp() + a.abs()
        def shuffled():
            traced = fx.symbolic_trace(branching)
            nodes = {node.name: node for node in traced.graph.nodes}
            nodes["mul"].prepend(nodes["tan"])
            nodes["sin"].prepend(nodes["add"])
            return traced
        common = of("tools_common")
        (common.stable_topological_sort(shuffled()).code, common.legalize_graph(shuffled())(x))
    """,
    "a module comes in the place of modules": """
        class Squashing(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.squash = t.nn.Tanh()
            def forward(self, x):
                return self.squash(x)
        traced = fx.symbolic_trace(t.nn.Sequential(t.nn.Sigmoid(), t.nn.ReLU(), t.nn.GELU()))
        pattern = fx.symbolic_trace(t.nn.Sequential(t.nn.Sigmoid(), t.nn.ReLU()))
        fx.replace_pattern(traced, pattern, fx.symbolic_trace(Squashing()))
        (traced.code, [name for name, _ in traced.named_modules()])
    """,
    "a fused model has the modules that it calls": """
        optimization = import_module(t.__name__ + ".fx.experimental.optimization")
        model = t.nn.Sequential(t.nn.Conv2d(1, 2, 1), t.nn.BatchNorm2d(2), t.nn.ReLU()).eval()
        [name for name, _ in optimization.fuse(model).named_modules()]
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_passes_agree(tg: Any, name: str) -> None:
    ours, theirs = evaluate(PROLOGUE + dedent(PROGRAMS[name]), tg)
    assert not isinstance(theirs, Exception), theirs
    assert_same(ours, theirs)
