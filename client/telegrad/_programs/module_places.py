"""Where telegrad keeps what PyTorch keeps in modules of other names: tables of names, and nothing else."""

from __future__ import annotations

from itertools import product
from typing import Final

PARTS: Final = {
    "": "functional types",
    "amp": "autocast_mode grad_scaler",
    "autograd": "anomaly_mode forward_ad function functional grad_mode gradcheck graph profiler variable",
    "cuda": "amp comm memory nvtx random streams",
    "cuda.amp": "autocast_mode common grad_scaler",
    "distributions": (
        "bernoulli beta binomial categorical cauchy chi2 constraint_registry constraints continuous_bernoulli "
        "dirichlet distribution exp_family exponential fishersnedecor gamma generalized_pareto geometric gumbel "
        "half_cauchy half_normal independent inverse_gamma kl kumaraswamy laplace lkj_cholesky log_normal "
        "logistic_normal lowrank_multivariate_normal mixture_same_family multinomial multivariate_normal "
        "negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli relaxed_categorical "
        "studentT transformed_distribution transforms uniform utils von_mises weibull wishart"
    ),
    "export": "dynamic_shapes exported_program unflatten",
    "nn": "common_types functional grad init modules parallel parameter utils",
    "nn.modules": (
        "activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold instancenorm lazy "
        "linear loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling utils"
    ),
    "nn.utils": (
        "clip_grad convert_parameters fusion init memory_format parametrizations parametrize prune rnn spectral_norm "
        "stateless weight_norm"
    ),
    "optim": (
        "adadelta adagrad adam adamax adamw asgd lbfgs lr_scheduler nadam optimizer radam rmsprop rprop sgd "
        "sparse_adam swa_utils"
    ),
    "utils.data": "dataloader dataset distributed sampler",
    "utils.data.datapipes": "datapipe",
    "utils.data.datapipes.iter": "callable combinatorics combining grouping selecting sharding utils",
    "utils.data.datapipes.map": "callable combinatorics combining grouping utils",
}
"""Modules of PyTorch's by the package that they are in, whose names a program may import from either."""
_LIBRARIES: Final = "cusparselt kleidiai miopen mkl mkldnn nnpack openmp opt_einsum quantized xnnpack"
_LIBRARY_PARTS: Final = ("custom_ops", "fake_impl", "infer_schema", "utils")
_OF_PROCESSES: Final = (
    "_composable _composable.fsdp _functional_collectives _shard _shard.sharded_tensor _tensor _tensor.experimental "
    "algorithms algorithms._checkpoint algorithms._checkpoint.checkpoint_wrapper algorithms.ddp_comm_hooks "
    "algorithms.ddp_comm_hooks.default_hooks algorithms.ddp_comm_hooks.post_localSGD_hook "
    "algorithms.ddp_comm_hooks.powerSGD_hook algorithms.model_averaging "
    "algorithms.model_averaging.averagers checkpoint checkpoint._consolidate_hf_safetensors "
    "checkpoint.default_planner checkpoint.format_utils checkpoint.hf_storage checkpoint.optimizer "
    "checkpoint.state_dict_loader checkpoint.state_dict_saver constants device_mesh "
    "distributed_c10d fsdp fsdp.api fsdp.fully_sharded_data_parallel fsdp.sharded_grad_scaler fsdp.wrap launcher "
    "launcher.api optim pipelining run tensor tensor._utils tensor.experimental "
    "tensor.experimental._attention tensor.parallel tensor.placement_types utils"
)
"""Modules below ``torch.distributed`` for what groups of processes share, which one module of telegrad's serves."""
_ELASTIC_PARTS: Final = ("", ".multiprocessing", ".multiprocessing.errors")
_COMPILING: Final = "functorch.aot_autograd functorch.compilers dynamo.backends.common"
_QUANTIZERS: Final = ("quantization", "ao.quantization")
_QUANTIZER_PARTS: Final = "fake_quantize observer qconfig quantize stubs"
_QUANTIZED_LAYERS: Final = ".intrinsic .qat .quantizable .quantized .intrinsic.qat .intrinsic.quantized"
_LOOPS: Final = "associative_scan cond foreach_map map scan while_loop"
_OF_DYNAMO: Final = "callback compiled_autograd comptime utils"
_DYNAMO_PARTS: Final = ("_trace_wrapped_higher_order_op", "decorators", "eval_frame", "external_utils")
_SAME: Final = (
    "export._modes fx._compatibility fx._lazy_graph_module fx._pytree fx._symbolic_trace nn._reduction "
    "utils._contextlib utils._mode_utils utils._python_dispatch utils._pytree utils._triton"
)
ELSEWHERE: Final = {
    **{f"distributed.{module}": "_programs.private.process_groups" for module in _OF_PROCESSES.split()},
    "distributed.algorithms.join": "distributed.joining",
    "distributed.checkpoint.state_dict": "_programs.state_dicts",
    "distributed.nn.functional": "distributed.nn",
    **{f"distributed.elastic{part}": "distributed.elastic" for part in _ELASTIC_PARTS},
    "_C": "_programs.compiled_core",
    "__future__": "nn._future_settings",
    "_tensor": "_programs.private.tensor_module",
    "nn.utils._per_sample_grad": "_programs.private.per_sample",
    "_C._nn": "_programs.private.nn_core",
    "nn.utils._named_member_accessor": "_programs.private.member_access",
    "_C._functorch": "_programs.private.functorch",
    "_C._profiler": "profiler._labels",
    **{f"_C._{part}": "_programs.private.core_functions" for part in ("fft", "linalg", "special")},
    "_VF": "_programs.private.core_functions",
    "_guards": "_programs.tracing_state",
    "_jit_internal": "jit.internal",
    "classes": "_library.compiled.torch_classes",
    "_custom_ops": "_library.compiled.torch_library",
    "_C._distributed_rpc": "distributed.rpc",
    "_functorch": "_programs.private.functorch",
    "_functorch.config": "compiler.functorch.config",
    "_functorch.vmap": "func._vmap_steps",
    **{f"_{module}": "compiler.aot.functions" for module in _COMPILING.split()},
    "_functorch.partitioners": "compiler.aot.partitioners",
    "_vmap_internals": "func._legacy_vmap",
    **{f"_functorch.{module}": "func" for module in ("apis", "eager_transforms")},
    "_utils": "_programs.private.utilities",
    "_tensor_str": "_programs.private.tensor_text",
    **{f"onnx{module}": "_programs.private.onnx" for module in ("", ".symbolic_helper", ".symbolic_opset11")},
    "_library": "_library.compiled.torch_library",
    **{f"_library.{part}": "_library.compiled.torch_library" for part in _LIBRARY_PARTS},
    **dict.fromkeys(("_library.effects", "_higher_order_ops.effects"), "_library.effects"),
    "_higher_order_ops": "_programs.private.higher_order",
    **{f"_higher_order_ops.{op}": "_programs.private.higher_order" for op in _LOOPS.split()},
    "_ops": "_library.compiled.torch_ops",
    **dict.fromkeys(("_subclasses", "_subclasses.fake_tensor"), "_dispatch.fake_tensors"),
    "__config__": "_programs.build_config",
    "_decomp": "_library.compiled.decompositions",
    "_dynamo": "compiler.dynamo",
    "_dynamo.config": "compiler.dynamo.config",
    "_dynamo.exc": "compiler.exc",
    "_dynamo.testing": "compiler.testing",
    **dict.fromkeys(("_dynamo.backends", "_dynamo.backends.registry"), "compiler.backends"),
    "_dynamo.backends.debugging": "compiler.dynamo_parts.debugging",
    "_dynamo.test_case": "testing.compiled_cases",
    **{f"_dynamo.{part}": f"compiler.dynamo_parts.{part}" for part in _OF_DYNAMO.split()},
    "utils.debug_log": "compiler.dynamo_parts.debug_log",
    **{f"_dynamo.{part}": "compiler.dynamo" for part in _DYNAMO_PARTS},
    "compiler.config": "compiler.public_config",
    "_inductor": "compiler.inductor",
    **{f"_inductor.{part}": f"compiler.inductor_parts.{part}" for part in ("compile_fx", "utils")},
    **dict.fromkeys(("_logging", "_logging._internal"), "compiler.logs"),
    "_inductor.config": "compiler.inductor.config",
    **dict.fromkeys(("ao", *_QUANTIZERS), "_programs.private.quantization"),
    **{f"{q}.{part}": "_programs.private.quantization" for q, part in product(_QUANTIZERS, _QUANTIZER_PARTS.split())},
    **{
        f"{above}nn{layers}{part}": "_programs.quantized_layers"
        for above, layers, part in product(("", "ao."), _QUANTIZED_LAYERS.split(), ("", ".dynamic", ".modules"))
    },
    "ao.nn": "_programs.quantized_layers",
    "autograd.profiler_util": "autograd.profiler",
    "distributions.multivariate_normal": "distributions.multivariate",
    "profiler.profiler": "profiler",
    **dict.fromkeys(("testing._internal", "testing._internal.common_utils"), "_programs.test_cases"),
    **{f"nested.{part}": f"nested.{part}" for part in ("_internal", "_internal.nested_tensor")},
    "masked._ops": "masked",
    "types": "_programs.annotation_types",
    "torch_version": "_programs.torch_version",
    **{name: name for name in _SAME.split()},
    **dict.fromkeys(("utils.benchmark.utils", "utils.benchmark.utils.common"), "utils.benchmark.measurement"),
    **{f"utils.benchmark.utils.{part}": f"utils.benchmark.{part}" for part in ("compare", "fuzzer")},
    "utils.benchmark.utils.timer": "utils.benchmark.timers",
    "utils.data._utils.worker": "utils.data.workers",
    **dict.fromkeys(("utils.data._utils", "utils.data._utils.collate"), "utils.data.collate"),
    "utils.data._utils.pin_memory": "utils.data.pinned",
    "_prims_common": "_programs.prims",
    "utils._device": "_programs.device_mode",
    "utils._foreach_utils": "_programs.private.foreach_groups",
    "utils.hooks": "_tensor.hooks",
    "utils.model_zoo": "hub",
    **{device: f"_other_devices.{device}" for device in ("cpu", "mps", "mtia", "xpu")},
    **{f"cpu.amp{part}": "_other_devices.cpu_amp" for part in ("", ".autocast_mode", ".grad_scaler")},
    **{f"backends.{library}": f"backends.host_libraries.{library}" for library in _LIBRARIES.split()},
}
"""Modules of PyTorch's that telegrad keeps under another name, both below their packages."""
