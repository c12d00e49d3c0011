"""Tables of how much of PyTorch there is, from the last runs of ``make opinfo`` and ``make surface``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.scope import OUT_OF_SCOPE

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results"
Table = Callable[[Sequence[str], Iterator[Sequence[str]]], str]
DEVICES = {"opinfo-cpu": "CPU", "opinfo-h200": "H200"}
"""Files of the operator database's results, where there are any, and the devices that they are of."""
FAMILIES = ("linalg", "fft", "special", "nn.functional", "masked", "signal.windows", "sparse")
ASPECTS = ("forward", "gradient", "second gradient", "non-contiguous", "inplace", "out", "errors")


def operators(table: Table) -> str:
    """One row a family of operators and device: how many entries hold in everything, and in each aspect."""
    return table(["operators", "device", "entries", "all of it", *ASPECTS], _operator_rows())


def _runs() -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    for name, device in DEVICES.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            yield device, json.loads(path.read_text())["entries"]


def _operator_rows() -> Iterator[Sequence[str]]:
    for device, entries in _runs():
        families: dict[str, list[dict[str, str]]] = defaultdict(list)
        for name, aspects in entries.items():
            families[next((f for f in FAMILIES if name.startswith(f"{f}.")), "torch")].append(aspects)
        for family in ("torch", *FAMILIES):
            if families[family]:
                yield _operator_row(f"`{family}`", device, families[family])
        yield _operator_row("all", device, [*entries.values()])


def _operator_row(family: str, device: str, entries: list[dict[str, str]]) -> Sequence[str]:
    checked, held = Counter[str](), Counter[str]()
    for aspects in entries:
        for aspect, outcome in aspects.items():
            kind = "forward" if aspect.startswith("forward") else aspect
            checked[kind] += 1
            held[kind] += outcome == "passed"
    whole = sum(all(outcome == "passed" for outcome in aspects.values()) for aspects in entries)
    return family, device, str(len(entries)), str(whole), *(f"{held[kind]} of {checked[kind]}" for kind in ASPECTS)


def lacking(table: Table) -> str:
    """One row an operator that does not hold in everything, with the aspects."""
    return table(["operator", "device", "does not hold in"], _lacking_rows())


def _lacking_rows() -> Iterator[Sequence[str]]:
    for device, entries in _runs():
        for name, aspects in sorted(entries.items()):
            wrong = [aspect for aspect, outcome in aspects.items() if outcome != "passed"]
            if wrong:
                yield f"`{name}`", device, ", ".join(wrong)


def names(table: Table) -> str:
    """One row a namespace: how many of PyTorch's documented names are there, and which are missing."""
    return table(["namespace", "names", "present", "other parameters", "missing"], _name_rows())


def _name_rows() -> Iterator[Sequence[str]]:
    for one in json.loads((RESULTS / "surface.json").read_text())["namespaces"]:
        place = f"torch.{one['namespace']}" if one["namespace"] else "torch"
        missing = ", ".join(f"`{name}`" for name in one["missing"])
        yield f"`{place}`", str(one["documented"]), str(one["present"]), str(len(one["different"])), missing


def left_out(table: Table) -> str:
    """One row a reason why names are left out on purpose, with the names that it concerns."""
    reasons: dict[str, set[str]] = {reason: set() for reason in OUT_OF_SCOPE.values()}
    for one in json.loads((RESULTS / "surface.json").read_text())["namespaces"]:
        for name, reason in one["out_of_scope"].items():
            reasons.setdefault(reason, set()).add(name)
    return table(
        ["reason", "names that PyTorch documents, such as"], (_reason_row(item) for item in reasons.items() if item[1])
    )


def _reason_row(item: tuple[str, Any]) -> Sequence[str]:
    reason, concerned = item
    shown = sorted(concerned)[:8]
    return reason, ", ".join(f"`{name}`" for name in shown) + (" and others" if len(concerned) > len(shown) else "")
