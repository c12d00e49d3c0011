"""What PyTorch has and telegrad has not, on purpose, and what to use instead. Whoever asks for it is told."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

INSTEAD: Final = {
    "_C": "it is PyTorch's compiled core; use the public functions",
    "_dynamo.utils": "torch._dynamo.explain(f)(*args) tells graphs, breaks and operations, TORCH_LOGS what differed",
    "_export": "torch.export has the public functions",
    "_inductor.aoti_compile_and_package": "torch.export.save writes a program that the server serves over HTTP",
    "_inductor.aoti_load_package": "torch.export.load reads a program; the server serves it over HTTP",
    **dict.fromkeys(
        [
            f"_inductor.utils.run_{what}get_{kind}"
            for what in ("and_", "fw_bw_and_")
            for kind in ("code", "triton_code")
        ],
        "kernels are made by the server; TORCH_LOGS=output_code tells the loops that it has made",
    ),
    "_inductor.cudagraph_trees": "the server captures graphs by itself; torch.cuda.graph captures them by hand",
    "_dynamo": "telegrad does not trace Python; torch.compile sends what a function queues as a program",
    "_inductor": "telegrad does not trace Python; torch.compile sends what a function queues as a program",
    "ao": "telegrad does not quantise; use half precision (torch.autocast, Module.half)",
    "backends.python_native": "the server chooses the kernel of an operation by itself",
    "cpu.get_capabilities": "the CPU is the server's, which chooses its instructions by itself",
    "cuda._memory_viz": "pytorch.org/memory_viz draws the file that torch.cuda.memory._dump_snapshot writes; "
    "torch.cuda.memory_summary tells as text",
    "cuda.gds": "files are read by the program; torch.load(path, map_location='cuda') sends them to the server's GPU",
    "cuda.tunable": "the server measures products as they come; torch.cuda.tunable.enable() asks for that",
    "distributed": "a session has all GPUs of its worker: see torch.nn.DataParallel, or Module.to('cuda:1')",
    "jit": "TorchScript is not served; call the function or the module itself",
    "mps": "the server's GPUs are CUDA devices; see torch.cuda",
    "mtia": "the server's GPUs are CUDA devices; see torch.cuda",
    "multiprocessing": "a process connects to a session of its own; use Python's multiprocessing, and pass arrays",
    "onnx": "torch.export makes files that telegrad serves; or save a state_dict and export where PyTorch is installed",
    "package": "save a state_dict with torch.save",
    "Storage": "torch.FloatStorage and its like make storages; or use a tensor",
    "quantization": "telegrad does not quantise; use half precision (torch.autocast, Module.half)",
    "serialization.register_package": "tensors of a file go where map_location= of torch.load says",
    "serialization.skip_data": "torch.load(path, map_location='meta') reads shapes and types alone",
    "storage": "memory is the server's: a storage is a tensor's, or made by torch.UntypedStorage",
    "utils.ThroughputBenchmark": "measure with torch.utils.benchmark.Timer, or the server's /metrics",
    "utils.bottleneck": "see telegrad.wire_stats and the server's /metrics",
    "utils.data.datapipes.iter": "generators of Python do what the other pipes do; see IterableWrapper",
    "utils.generate_methods_for_privateuse1_backend": "devices are the server's: its CPU and CUDA devices",
    "utils.rename_privateuse1_backend": "devices are the server's: its CPU and CUDA devices",
    "utils.mkldnn": "layouts of oneDNN belong to PyTorch's own process; call the module as it is",
    "xpu": "the server's GPUs are CUDA devices; see torch.cuda",
}
"""What a program can use instead, by the name below ``torch`` of what is absent."""


_CLOSE: Final = 0.7
"""How much alike a name is that might be meant; less brings names that have nothing to do with it."""


def reason(name: str, there: Iterable[str] = ()) -> str:
    """Return a sentence about a name below ``torch`` that telegrad lacks; ``there`` are names that might be meant."""
    absent = f"torch.{name} is not there: this program's torch is telegrad"
    known = [one for one in INSTEAD if name == one or name.startswith(f"{one}.")]
    known += ["quantization"] if "quantize" in name else []
    if known:
        return f"{absent}; {INSTEAD[max(known, key=len)]}"
    last = name.rpartition(".")[2]
    close = difflib.get_close_matches(last, [other for other in there if other[0] != "_"], 3, _CLOSE)
    return f"{absent}, which has {', '.join(close)}" if close else f"{absent}, which does not have it yet"
