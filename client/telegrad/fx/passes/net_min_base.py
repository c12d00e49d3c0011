"""Minimizers: find the nodes of a graph for which two ways to run it give different results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from telegrad.fx.graph_module import GraphModule
from telegrad.fx.interpreter import Interpreter
from telegrad.fx.node import Node

from .split_utils import split_by_tags

__all__ = [
    "FxNetMinimizerBadModuleError", "FxNetMinimizerResultMismatchError", "FxNetMinimizerRunFuncError",
]  # fmt: skip

_CALLS = ("call_function", "call_method", "call_module")
_PART = "minimize"


class FxNetMinimizerBadModuleError(Exception):
    """A part of the graph could not be taken out of it."""


class FxNetMinimizerRunFuncError(Exception):
    """One of the two ways has failed on a part of the graph."""


class FxNetMinimizerResultMismatchError(Exception):
    """The two ways give different results for a part of the graph."""


@dataclass
class _MinimizerSettingBase:
    """How nodes are searched: ``traverse_method`` is sequential, binary, accumulate, block or skip.

    With ``accumulate_error`` a part gets the results that the second way has given for what is before it; with
    ``find_all`` a search goes on behind the first node that it has found.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self) -> str:
        lines = [f"\t{name}: {value}" for name, value in vars(self).items()]
        return "\n".join(["FX Minimizer Settings:", *lines, ""])


class _Values(Interpreter):
    """Runs a graph, and keeps what each node gives."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)


class _MinimizerBase:
    """Base of minimizers, which define the two ways, ``run_a`` and ``run_b``.

    ``compare_fn`` is given their results and the names of the nodes that gave them, and returns a number, which is
    printed, and whether they are alike.
    """

    def __init__(
        self, module: GraphModule, sample_input: Sequence[Any],
        compare_fn: Callable[[Any, Any, tuple[str, ...]], tuple[float, bool]], settings: _MinimizerSettingBase,
        module_exporter: Any = None, exclusion_fn: Callable[[list[Node], int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.module, self.sample_input = module, sample_input
        self.compare_fn, self.settings, self.exclusion_fn = compare_fn, settings, exclusion_fn
        self.module_exporter = module_exporter
        self.reports: list[list[str]] = []
        self.iteration = 0
        values = _Values(module)
        values.run(*sample_input)
        self.a_outputs: dict[str, Any] = {node.name: value for node, value in values.env.items()}
        self.b_outputs: dict[str, Any] = {}
        self.results: dict[Any, Any] = {}

    def run_a(self, mod: GraphModule, inputs: Sequence[Any], report_idx: int = -1) -> Any:
        """Return what a part of the graph gives in the first way."""
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Sequence[Any], report_idx: int = -1) -> Any:
        """Return what a part of the graph gives in the second way."""
        raise RuntimeError("run_b() is not implemented.")

    def minimize(
        self, start: str | None = None, end: str | None = None, skip_nodes: Sequence[str] | None = None,
        find_last_node: bool | None = None,
    ) -> set[Node]:  # fmt: skip
        """Return the nodes, between two that are named, for which the two ways differ."""
        print(self.settings)
        print(self.module.graph)
        nodes = self._collect_nodes(start, end)
        methods: dict[str, Callable[[list[Node]], set[Node]]] = {
            "sequential": self._sequential_traverse, "binary": self._binary_traverse, "block": self._binary_traverse,
            "accumulate": self._accumulate_traverse, "skip": lambda nodes: self._skip_traverse(nodes, skip_nodes or ()),
        }  # fmt: skip
        method = methods.get(self.settings.traverse_method)
        if method is None:
            raise RuntimeError(f"Unknown traverse method {self.settings.traverse_method}!")
        return method(nodes)

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Compare the two ways for the nodes between two that are named, and print what is different."""
        nodes = self._collect_nodes(start, end)
        error = self._error_of(nodes)
        self.print_reports()
        if error is not None:
            print(error)

    def print_report(self, report: Sequence[str]) -> None:
        """Print the lines of one comparison, those behind the first one moved in."""
        for number, line in enumerate(report):
            print(f" . {line}" if number else line)

    def print_reports(self) -> None:
        """Print all comparisons."""
        for report in self.reports:
            self.print_report(report)

    def _collect_nodes(self, start: str | None, end: str | None) -> list[Node]:
        nodes = [node for node in self.module.graph.nodes if node.op in _CALLS]
        names = [node.name for node in nodes]
        first = names.index(start) if start is not None else 0
        last = names.index(end) if end is not None else len(nodes) - 1
        return nodes[first : last + 1]

    def _new_report(self, first: str) -> list[str]:
        self.iteration += 1
        report = [first]
        self.reports.append(report)
        return report

    def _part(self, nodes: Sequence[Node]) -> tuple[GraphModule, list[Node], list[Node]]:
        """Return the module of some nodes that follow each other, its inputs and its outputs."""
        inside, is_past, tags = set(nodes), False, list[str]()
        for node in self.module.graph.nodes:
            if node.op in _CALLS:
                is_past = is_past or node in inside
                node.tag = _PART if node in inside else "after" if is_past else "before"
                tags += [] if node.tag in tags else [node.tag]
        split = split_by_tags(self.module, tags)
        inputs = [node for node in self.module.graph.nodes if node not in inside and _feeds(node, inside)]
        outputs = [node for node in nodes if any(user not in inside for user in node.users)]
        return getattr(split, _PART), [node for node in inputs if node.op != "get_attr"], outputs

    def _error_of(self, nodes: Sequence[Node]) -> Exception | None:
        """Return how the two ways differ for some nodes; None where they do not."""
        report = self.reports[-1] if self.reports else self._new_report("Run nodes.")
        try:
            part, inputs, outputs = self._part(nodes)
        except Exception as error:
            raise FxNetMinimizerBadModuleError(f"cannot take {nodes} out of the graph") from error
        report.append("Run and compare ...")
        names = tuple([node.name for node in outputs])
        try:
            found = self.run_a(part, self._inputs(inputs, {}), len(self.reports) - 1)
            given = self.run_b(part, self._inputs(inputs, self.b_outputs), len(self.reports) - 1)
        except Exception as error:
            return FxNetMinimizerRunFuncError(f"Failed to run {names}: {error}")
        self._store(outputs, given)
        number, is_alike = self.compare_fn(found, given, names)
        self.results[names[0] if len(names) == 1 else names] = number
        report.append(f"Numerical accuracy = {number}")
        if is_alike:
            return None
        report.append(f"Result mismatch for {names}")
        return FxNetMinimizerResultMismatchError(f"Result mismatch for {names}")

    def _inputs(self, inputs: Sequence[Node], other: dict[str, Any]) -> list[Any]:
        taken = other if self.settings.accumulate_error else {}
        return [taken.get(node.name, self.a_outputs[node.name]) for node in inputs]

    def _store(self, outputs: Sequence[Node], given: Any) -> None:
        values = given if isinstance(given, (tuple, list)) and len(outputs) > 1 else [given]
        self.b_outputs.update({node.name: value for node, value in zip(outputs, values)})

    def _sequential_traverse(self, nodes: list[Node]) -> set[Node]:
        culprits: set[Node] = set()
        for node in nodes:
            report = self._new_report(f"Sequential traverse iteration {self.iteration + 1}.")
            report.append(f"Visit node: {node.name}")
            error = self._error_of([node])
            if error is not None:
                kind = "numeric" if isinstance(error, FxNetMinimizerResultMismatchError) else "run"
                report.append(f"Found culprit from {kind} error: {node}")
                culprits.add(node)
            self.print_report(report)
            if culprits and not self.settings.find_all:
                break
        return culprits

    def _binary_traverse(self, nodes: list[Node]) -> set[Node]:
        return self._halves(nodes, 0, len(nodes))

    def _halves(self, nodes: list[Node], start: int, end: int) -> set[Node]:
        """Search the nodes from ``start`` to ``end`` by halves, if the two ways differ for them together."""
        part = nodes[start:end]
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, start, end)
        report = self._new_report(f"Binary search iteration {self.iteration + 1}")
        report.append(
            f"From node index {start}:{part[0].name} to {end - 1}:{part[-1].name}. "
            f"Size of the interested node list is {len(part)}"
        )
        error = self._error_of(part)
        if error is None:
            report.append("No discrepancy found.")
        elif len(part) == 1:
            report.append(
                "This is the last node in the sub-module. "
                f"Search in the current branch is successful with culprit = {{{part[0]}}}."
            )
        else:
            report.append("Proceed to split and lower the halves of the current sub-module individually.")
        self.print_report(report)
        if error is None or len(part) == 1:
            return set() if error is None else set(part)
        middle = start + len(part) // 2
        found = self._halves(nodes, start, middle)
        if found and not self.settings.find_all:
            return found
        return (found | self._halves(nodes, middle, end)) or set(part)

    def _accumulate_traverse(self, nodes: list[Node]) -> set[Node]:
        culprits: set[Node] = set()
        for count in range(1, len(nodes) + 1):
            report = self._new_report(f"Accumulate traverse iteration {self.iteration + 1}.")
            report.append(f"Add node: {nodes[count - 1].name}")
            error = self._error_of(nodes[:count])
            if error is not None:
                report.append(f"Found culprit {nodes[count - 1]}")
                culprits.add(nodes[count - 1])
            self.print_report(report)
            if error is not None:
                break
        return culprits

    def _skip_traverse(self, nodes: list[Node], skipped: Sequence[str]) -> set[Node]:
        """Return the nodes of those stretches between skipped ones for which the two ways differ."""
        return {
            node for stretch in _stretches(nodes, skipped) if self._error_of(stretch) is not None for node in stretch
        }


def _feeds(node: Node, inside: set[Node]) -> bool:
    return any(user in inside for user in node.users)


def _stretches(nodes: Sequence[Node], skipped: Sequence[str]) -> Iterator[list[Node]]:
    stretch: list[Node] = []
    for node in nodes:
        if node.name not in skipped:
            stretch.append(node)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
