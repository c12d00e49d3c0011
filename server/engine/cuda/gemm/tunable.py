"""Tunable operations: which way to compute a product is the fastest on this device, measured on the operands at hand.

The ways are cuBLASLt's most promising algorithms, cuBLAS, and our own kernels. While one is measured nothing else runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine.device.cupy_module import cp
from server.engine.device.interface import Capture
from server.engine.switches import Switches
from server.engine.tuning import Tuner
from server.engine.value import Launch, Value

from . import cublaslt, few_rows
from .layout import Matrices
from .product import Product, compute_type
from .solutions import solution_launch

_ALGORITHMS = 8
_IN_A_GRAPH = 20
"""Launches of a way that are measured as one."""
_LONG_MS = 0.2
"""What takes longer is measured without a graph: the host is far ahead of the device."""
_OWN_LIMIT = 1 << 26
"""The largest product, in multiplications, for which our own kernel is worth trying."""


def tuned(
    backend: Any, product: Product, switches: Switches, tuner: Tuner, args: tuple[Any, ...], outs: tuple[Value, ...]
) -> Launch | None:
    """The way that is known to be the fastest, or found so now; None where neither."""
    operation, parameters = _signature(product, switches)
    known = tuner.solution(operation, parameters)
    if known is not None:
        return solution_launch(backend, product, switches, _checked(known))
    if not tuner.tunes or _is_capturing():
        return None
    ways = _ways(backend, product, switches)
    targets = tuple([backend.empty(out.meta) for out in outs])  # what measuring writes, nobody is to see
    measures = {name: _Stopwatch(backend, launch, args, targets) for name, launch in ways.items()}
    result = tuner.fastest(measures)
    tuner.note(operation, parameters, result)
    return ways[result.solution]


def _is_capturing() -> bool:
    return bool(cp.cuda.get_current_stream().is_capturing())


def _checked(solution: str) -> str | None:
    """A solution's name, if we have such a way; it may come from a file."""
    kind, _, rank = solution.partition("_")
    is_ranked = kind == "cublaslt" and rank.isdecimal() and int(rank) < _ALGORITHMS
    return solution if solution in ("own", "cublas", few_rows.NAME) or is_ranked else None


def _ways(backend: Any, product: Product, switches: Switches) -> dict[str, Launch]:
    names = [f"cublaslt_{rank}" for rank in range(_ALGORITHMS)]
    names += ["cublas", few_rows.NAME]
    work = product.out.batch * product.out.rows * product.out.columns * product.left.columns
    if work <= _OWN_LIMIT:
        names.append("own")
    launches = {name: solution_launch(backend, product, switches, name) for name in names}
    return {name: launch for name, launch in launches.items() if launch is not None}


class _Stopwatch:
    """Milliseconds that a number of runs of one way take on the device.

    What takes less than its launch from the host is measured in a graph of many launches, as programs are launched;
    launched one by one, ways would be compared by what the host takes for them.
    """

    __slots__ = ("_args", "_backend", "_graph", "_is_alone", "_launch", "_outs")

    def __init__(self, backend: Any, launch: Launch, args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        self._backend, self._launch, self._args, self._outs = backend, launch, args, outs
        self._graph: Capture | None = None
        self._is_alone = False
        """Whether it is launched one by one: it takes long, or cannot be captured."""

    def __call__(self, runs: int) -> float:
        if self._graph is None:
            alone = self._timed(self._run, runs)
            self._is_alone = self._is_alone or alone > _LONG_MS * runs or not self._has_captured()
            if self._is_alone:
                return alone
        launches = -(-runs // _IN_A_GRAPH)
        return self._timed(self._launch_graph, launches) * runs / (launches * _IN_A_GRAPH)

    def _run(self) -> None:
        self._launch(self._args, self._outs)

    def _launch_graph(self) -> None:
        if self._graph is not None:
            self._graph.launch()

    def _has_captured(self) -> bool:
        """Capture; whether that went well. All that a launch makes once has been made by then."""
        self._graph = self._backend.capture(self._run_often)
        self._launch_graph()
        return self._graph is not None

    def _run_often(self) -> bool:
        for _ in range(_IN_A_GRAPH):
            self._run()
        return True

    @staticmethod
    def _timed(work: Callable[[], None], times: int) -> float:
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        for _ in range(times):
            work()
        end.record()
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(begin, end))


def _signature(product: Product, switches: Switches) -> tuple[str, str]:
    """What the choice depends on, as PyTorch writes it: operation and types, then layouts, sizes and steps."""
    left, right, out = product.left, product.right, product.out
    layout = f"{_letter(right)}{_letter(left)}"
    kind = "GemmAndBiasTunableOp" if product.adds_bias else "GemmTunableOp"
    kind = "GemmStridedBatchedTunableOp" if out.batch > 1 else kind
    tf32 = "_tf32" if compute_type(product, switches) == cublaslt.COMPUTE_32F_FAST_TF32 else ""
    sizes = f"{layout.lower()}_{out.columns}_{out.rows}_{left.columns}"
    batch = f"_B_{out.batch}" if out.batch > 1 else ""
    leading = "_".join(str(m.row_step if m.is_by_rows else m.column_step) for m in (right, left, out))
    added = "" if product.added is None else f"_add_{product.beta != 0:d}"
    gradient = "" if product.bias_gradient_at is None else "_bgrad"
    return f"{kind}_{out.dtype.name}{tf32}_{layout}", f"{sizes}{batch}_ld_{leading}{added}{gradient}"


def _letter(of: Matrices) -> str:
    return "N" if of.is_by_rows else "T"


def validators(backend: Any) -> list[list[str]]:
    """What results are only good for: as PyTorch's, name and value."""
    properties = backend.properties()
    return [
        ["TELEGRAD_VERSION", "1"],
        ["CUDA_RUNTIME", str(cp.cuda.runtime.runtimeGetVersion())],
        ["CUBLASLT_VERSION", cublaslt.version() if cublaslt.is_available() else "none"],
        ["GPU_NAME", str(properties["name"])],
    ]
