"""Expressions of Prometheus: which metrics and labels they use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, VectorSelector

_MACROS = {"$__rate_interval": "5m", "$__range": "1h", "$instance": ".*", "$tenant": ".*"}


def parsed(expression: str) -> Any:
    """The expression as a tree, Grafana's variables replaced; ValueError where Prometheus would refuse it."""
    for macro, value in _MACROS.items():
        expression = expression.replace(macro, value)
    if "$" in expression:
        raise ValueError(f"an unknown variable of Grafana in {expression}")
    return promql_parser.parse(expression)


def uses_of(expression: str) -> dict[str, set[str]]:
    """The metrics of an expression, and the labels by which it selects or groups each."""
    return _uses(parsed(expression), set())


def _uses(tree: Any, named: set[str]) -> dict[str, set[str]]:
    """The labels that an aggregation or a join names have to be on every metric below it."""
    named = named | _labels_of(tree)
    if isinstance(tree, VectorSelector):
        return {tree.name: named | {matcher.name for matcher in tree.matchers.matchers}}
    uses: dict[str, set[str]] = {}
    for part in _parts(tree):
        for metric, labels in _uses(part, named).items():
            uses.setdefault(metric, set()).update(labels)
    return uses


def labels_of_result(expression: str, known: Mapping[str, set[str]]) -> set[str]:
    """The labels of what an expression results in; ``known`` has those of each metric."""
    return _result(parsed(expression), known)


def _result(tree: Any, known: Mapping[str, set[str]]) -> set[str]:
    if isinstance(tree, VectorSelector):
        return known[tree.name]
    if isinstance(tree, AggregateExpr):
        return _labels_of(tree)
    parts = [tree.lhs] if isinstance(tree, BinaryExpr) else _parts(tree)
    labels = set().union(*(_result(part, known) for part in parts))
    return labels - {"le"} if getattr(getattr(tree, "func", None), "name", "") == "histogram_quantile" else labels


def _parts(tree: Any) -> Iterator[Any]:
    for name in ("expr", "lhs", "rhs", "args", "param", "vector_selector"):
        value = getattr(tree, name, None)
        yield from value if isinstance(value, list) else filter(None, [value])


def _labels_of(tree: Any) -> set[str]:
    """The labels that an aggregation groups by, or a binary operation joins by."""
    modifier = getattr(tree, "modifier", None)
    chosen = getattr(modifier, "matching", None) or modifier
    return set(getattr(chosen, "labels", None) or ())


def labels_in(template: str) -> set[str]:
    """The labels that a legend or a summary shows, as ``{{label}}`` or ``$labels.label``."""
    return set(re.findall(r"\{\{\s*(\w+)\s*\}\}", template)) | set(re.findall(r"\$labels\.(\w+)", template))
