"""Writes what comes from code: tables of the docs (operations, variables), and the client's stub for type checkers.

A page keeps its hand-written text; what stands between its two markers is replaced. Knows the places where the facts
live, not the facts. ``--check`` writes nothing and fails where a file is behind.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import error_codes
import parity
import stubs
from pydantic.fields import FieldInfo

from server.gateway.observability.metrics import Metrics
from server.gateway.settings import CLIENT_VARIABLES, PREFIX, Settings
from telegrad_protocol.ops import FAMILIES, TABLE, Op
from telegrad_protocol.ops.namespaces import place_of
from telegrad_protocol.pytorch_variables import VARIABLES as PYTORCH_VARIABLES

DOCS = Path(__file__).resolve().parent


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(markdown, line)) + " |" for line in lines)


def markdown(cell: str) -> str:
    """A docstring's text as a table cell."""
    return cell.replace("``", "`").replace("|", "\\|")


def settings_table() -> str:
    rows = ((f"`{PREFIX}{name.upper()}`", default(info), info.description or "") for name, info in fields())
    return table(["variable", "default", "meaning"], rows)


def metrics_table() -> str:
    rows = (
        [f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help]
        for metric in Metrics().described
    )
    return table(["metric", "kind", "labels", "meaning"], rows)


def client_table() -> str:
    return table(["variable", "meaning"], ([f"`{name}`", text] for name, text in CLIENT_VARIABLES.items()))


def pytorch_table() -> str:
    rows = ([f"`{each.name}`", each.reader, each.meaning] for each in PYTORCH_VARIABLES)
    return table(["variable", "read by", "meaning"], rows)


def fields() -> Iterator[tuple[str, FieldInfo]]:
    yield from Settings.model_fields.items()


def default(info: FieldInfo) -> str:
    return f"`{info.default}`" if info.default not in (None, "", ()) else ""


def operations() -> str:
    """One table a family, one row a contract."""
    seen: set[str] = set()
    return "\n\n".join(filter(None, (family_section(module, seen) for module in FAMILIES)))


def family_section(module: ModuleType, seen: set[str]) -> str:
    ops = [op for op in vars(module).values() if is_contract(op) and op.name not in seen]
    seen.update(op.name for op in ops)
    name = module.__name__.rpartition(".")[2]
    rows = ([f"`{called(op)}`", ", ".join(forms(op)), op.doc.partition("\n")[0]] for op in ops)
    return f"## {name}\n\n{table(['operation', 'forms', 'meaning'], rows)}" if ops else ""


def called(op: Op) -> str:
    """The signature under the name that users call."""
    namespace, name = place_of(op.public)
    return f"{namespace}.{name}{op.signature.removeprefix(op.public)}" if namespace else op.signature


def is_contract(value: Any) -> bool:
    return isinstance(value, Op) and value.base is value and not value.public.startswith("_")


def forms(op: Op) -> Iterator[str]:
    """How else an operation can be called, and what kind it is."""
    if op.view_of is not None:
        yield "view"
    if op.data_dependent:
        yield "waits for the shape"
    if op.is_random:
        yield "random"
    derived = {other.form for other in TABLE.values() if other.base is op}
    yield from (shown for form, shown in (("inplace", "in place"), ("out", "`out=`")) if form in derived)


ABOUT_A_RUN = ("date", "gpu", "device", "driver", "python", "torch", "note")


def about(run: dict[str, Any]) -> str:
    """What a file of figures tells of its run."""
    return ", ".join(f"{key} {run[key]}" for key in ABOUT_A_RUN if key in run)


def results_table(name: str) -> Callable[[], str]:
    """The table of a file of figures under ``benchmarks/results``."""

    def rows(figures: list[dict[str, Any]]) -> Iterator[Sequence[str]]:
        for each in figures:
            spread = f"{each['low']:.3g} to {each['high']:.3g}"
            yield each["name"], f"{each['value']:.3g} {each['unit']}", spread, each["goal"], each["baseline"]

    def write() -> str:
        run = json.loads((DOCS.parent / "benchmarks/results" / f"{name}.json").read_text())
        return f"{about(run)}\n\n" + table(["figure", "median", "quartiles", "goal", "beside it"], rows(run["figures"]))

    return write


def kernels_table() -> str:
    """One row a kernel of the host, beside PyTorch with one thread and with two."""
    run = json.loads((DOCS.parent / "benchmarks/results/cpu-kernels.json").read_text())
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for each in run["figures"]:
        name, _, threads = each["name"].rpartition(", ")
        found.setdefault(name, {})[threads] = each
    head = ["operation", "telegrad", "x PyTorch, 1 thread", "quartiles", "x PyTorch, 2 threads", "quartiles"]
    return f"{about(run)}\n\n" + table(head, (kernel_row(name, each) for name, each in found.items()))


def kernel_row(name: str, figures: dict[str, dict[str, Any]]) -> Sequence[str]:
    one, two = figures["1 thread"], figures["2 threads"]
    ratios = [(f"{each['value']:.2f}", f"{each['low']:.2f} to {each['high']:.2f}") for each in (one, two)]
    return name, f"{one['extra']['telegrad']:.3g} {one['extra']['per']}", *ratios[0], *ratios[1]


def walks_table() -> str:
    """One row a step of a program: what it passes now, and what it passed before the rooms were made."""
    run = json.loads((DOCS.parent / "benchmarks/results/walks.json").read_text())
    counts = ("files", "changes", "calls")
    rows = (
        [name, *(f"{walk[count]} ({run['before'][name][count]})" for count in counts)]
        for name, walk in run["now"].items()
    )
    return f"{about(run)}; before decision 0017 in brackets\n\n" + table(["step", *counts], rows)


def load_table() -> str:
    """One row a mode of isolation and number of trainings: what they do, and what somebody beside them notices."""
    run = json.loads((DOCS.parent / "benchmarks/results/load-cpu.json").read_text())
    head = ["mode", "trainings", "steps/s of all", "round trip", "99th percentile", "alone", "gateway", "workers"]
    lone = [each for each in run["figures"] if "mode" not in each["extra"]]
    beside = [load_row(each["value"], each["extra"]) for each in run["figures"] if "mode" in each["extra"]]
    singles = "; ".join(f"{each['name']}: {each['value']:.3f} (goal {each['goal']})" for each in lone)
    return f"{about(run)}. Time of a step: {singles}.\n\n" + table(head, beside)


def load_row(rate: float, row: dict[str, Any]) -> Sequence[str]:
    times = [f"{row[name] * 1e3:.2g} ms" for name in ("p50", "p99", "alone_p99")]
    memory = [f"{row[name] / 2**20:.0f} MiB" for name in ("gateway_bytes", "worker_bytes")]
    return f"`{row['mode']}`", str(row["sessions"]), f"{rate:.3g}", *times, *memory


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table, "metrics": metrics_table, "client": client_table, "pytorch": pytorch_table,
    "operations": operations,
    "results_cpu": results_table("cpu"), "results_wire_h200": results_table("wire-h200"),
    "results_allocator": results_table("allocator-h200"), "results_replay": results_table("replay-h200"),
    "results_kernels": kernels_table, "results_cpu_threads": results_table("cpu-threads"),
    "results_cpu_one_thread": results_table("cpu-one-thread"),
    "results_linalg": results_table("linalg-cpu"), "results_compiled": results_table("compiled-cpu"),
    "results_programs": results_table("programs-cpu"), "results_compiled_h200": results_table("compiled-h200"),
    "results_compiled_models": results_table("compiled-models-h200"),
    "results_compiled_gpt": results_table("compiled-gpt-h200"),
    "results_compiled_steps": results_table("compiled-steps-h200"),
    "results_compiled_token": results_table("compiled-token-h200"),
    "results_compiled_mlp": results_table("compiled-mlp-h200"),
    "results_compiled_d384": results_table("compiled-d384-h200"),
    "results_serving": results_table("serving-cpu"), "results_serving_h200": results_table("serving-h200"),
    "results_linalg_mkl": results_table("linalg-cpu-mkl"),
    "results_attention": results_table("attention-h200"),
    "results_convolution": results_table("convolution-h200"), "results_pooling": results_table("pooling-h200"),
    "results_sparse": results_table("sparse-h200"), "results_profiling": results_table("profiling-h200"),
    "results_custom_kernels": results_table("custom-kernels-h200"),
    "results_extensions": results_table("extensions-h200"),
    "results_recurrent": results_table("recurrent-h200"), "results_linalg_h200": results_table("linalg-h200"),
    "results_rows": results_table("rows-h200"), "results_reductions": results_table("reductions-h200"),
    "results_pointwise": results_table("pointwise-h200"),
    "results_gemm": results_table("gemm-h200"), "results_optimizers": results_table("optimizers-h200"),
    "results_steps": results_table("steps-h200"), "results_changing": results_table("changing-h200"),
    "results_kinds": results_table("kinds-h200"),
    "results_host_cost": results_table("host-cost-h200"), "results_first_step": results_table("first-step-h200"),
    "parity_operators": partial(parity.operators, table), "parity_lacking": partial(parity.lacking, table),
    "parity_names": partial(parity.names, table), "parity_left_out": partial(parity.left_out, table),
    "error_codes": partial(error_codes.codes, table),
    "walks": walks_table, "load": load_table,
    "compare_cpu": results_table("compare-cpu"), "compare_h200": results_table("compare-h200"),
}  # fmt: skip
SLOT = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def renewed(text: str) -> str:
    return SLOT.sub(lambda slot: f"{slot[1]}\n{TABLES[slot[2]]()}\n\n{slot[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only tell which pages are behind")
    check = parser.parse_args().check
    wanted = {page: renewed(page.read_text()) for page in sorted(DOCS.glob("*.md"))} | stubs.stubs()
    behind = {page: text for page, text in wanted.items() if not page.exists() or page.read_text() != text}
    for page, text in behind.items():
        print(f"{page.parent.name}/{page.name}: {'is behind the code; run make docs' if check else 'written'}")
        if not check:
            page.write_text(text)
    sys.exit(bool(check and behind))


if __name__ == "__main__":
    main()
