"""What of PyTorch telegrad leaves out on purpose, each with its reason. Both sweeps and the docs read this list."""

from __future__ import annotations

import re
from typing import Final

OUT_OF_SCOPE: Final = {
    r"jiterator_.*": "compiles text of PyTorch's own code generator",
    r"(.*\.)?_.*": "a private name of PyTorch",
    r"ops\.nvprims\..*": "a private backend of PyTorch",
    r"index": "a method of PyTorch's first-class dimensions; tensors are indexed by []",
    r".*quantiz.*|int_repr|q_.*|.*fake_quant.*|qint.*|quint.*|.*qscheme.*|qat": "telegrad does not quantise",
    r".*narrow_copy\.nested.*|.*_nested": "a prototype in PyTorch",
    r".*(script|jit|onnx|hub|Script).*": "TorchScript, ONNX and the hub belong to PyTorch's own process",
    r".*(xpu|mps|mtia|hip|vulkan|mkldnn|mkl|xnnpack|openmp|cusparselt|nnpack|ipu|hpu|rocm|metal).*|to_mkldnn": (
        "another accelerator or library than the server has"
    ),
    r".*(dispatch|Dispatch|sym_|Sym|fx_).*|compiled_with_cxx11_abi|vitals_enabled|set_vital|.*_vital": (
        "machinery of PyTorch's compiler and dispatcher"
    ),
    r"tree_map|is_tensor_like|Profiler(Activity|State|Config)|kineto_available|KinetoStepTracker|"
    r"register_optimizer_step_post_hook": (
        "imported there by PyTorch's own code; tensors and profilers have it under its documented name"
    ),
    r".*Storage.*|is_storage|storage_type": "memory is the server's; storages are shown by way of tensors",
    r"CustomDecompTable|ExportBackwardSignature|FlatArgsAdapter|ModuleCall(Entry|Signature)|PassResult": (
        "what PyTorch's passes over graphs of nodes are made with; an exported program is data here"
    ),
    r".*DataPipe|functional_datapipe|DataChunk|guaranteed_datapipes_determinism|non_deterministic|argument_validation|"
    r"runtime_validation(_disabled)?": "PyTorch keeps its data pipes for old programs only",
    r".*(legacy|deterministic_debug_mode|warn_always).*|get_file_path|prepare_multiprocessing_environment": (
        "a detail of PyTorch's own process"
    ),
    r"(.*Type|.*_type|Type|Value|Node|Block|Graph|Argument|FunctionSchema|Use|Code|CallStack|Capsule|FileCheck|.*Module"
    r"Dict|Gradient|IODescriptor|Interface.*|LockingLogger|.*Logger|LoggerBase|OperatorInfo|ThroughputBenchmark|"
    r"Throughput.*|BenchmarkConfig|BenchmarkExecutionStats|CompilationUnit|CompleteArgumentSpec|ConcreteModule.*|"
    r"DeepCopyMemoTable|DeserializationStorageContext|DisableTorchFunction.*|ErrorReport|ExecutionPlan|"
    r"FatalError|GraphExecutorState|ListType|LiteScriptModule|NoopLogger|OptionalType|PyObjectType|Py.*|"
    r"SerializationStorageContext|StaticModule|TracingState|AliasDb|AwaitType|ClassType|InferredType|Future|wait|fork|"
    r"parse_.*|merge_type_from_type_comment|import_ir_module.*|unify_type_list|freeze|init_num_threads|"
    r"is_autocast_.*_enabled|set_autocast_.*_enabled|get_autocast_.*_dtype|set_autocast_.*_dtype|autocast_.*|"
    r"clear_autocast_cache|read_vitals|classes|ops|Tag|DispatchKey.*)": (
        "TorchScript's types and other objects of PyTorch's C++ core"
    ),
    r"(has|handle)_torch_function(_\w+)?|copy_method_params|get_swap_module_params_on_conversion|"
    r"is_traceable_wrapper_subclass": "imported into PyTorch's files for their own use; not documented there",
}
"""By a pattern of the name below its namespace; operators' names count as in the database."""


IN_SCOPE: Final = frozenset(
    ("ModuleDict", "Module", "flipud", "get_deterministic_debug_mode", "huber_loss", "result_type",
     "set_default_tensor_type", "set_deterministic_debug_mode", "storage_offset")
)  # fmt: skip
"""Names that a pattern above means by accident."""


def reason(name: str) -> str:
    """Return why a name is out of scope; empty if it is in scope."""
    if name.rpartition(".")[2] in IN_SCOPE:
        return ""
    return next((why for pattern, why in OUT_OF_SCOPE.items() if re.fullmatch(pattern, name)), "")
