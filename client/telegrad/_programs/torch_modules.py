"""``import torch`` served by telegrad: every module of PyTorch's is the module of telegrad with the same name.

A finder, put before all others, answers for ``torch`` and what is below it. Where telegrad keeps in one module what
PyTorch keeps in several, such as ``torch.nn.modules.linear``, the missing one shows the names of the one above it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import product
from opcode import opmap
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, Final

from telegrad_protocol.dtypes import DType
from telegrad_protocol.shown_name import show_as

from . import safetensors_torch
from .absent import reason
from .shown_classes import show_classes
from .starred import STARRED
from .torch_version import PYTORCH_VERSION, TorchVersion, version_module

_PARTS: Final = {
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
    "algorithms.ddp_comm_hooks.powerSGD_hook algorithms.join algorithms.model_averaging "
    "algorithms.model_averaging.averagers checkpoint checkpoint._consolidate_hf_safetensors "
    "checkpoint.default_planner checkpoint.format_utils checkpoint.hf_storage checkpoint.optimizer "
    "checkpoint.state_dict_loader checkpoint.state_dict_saver constants device_mesh "
    "distributed_c10d fsdp fsdp.api fsdp.fully_sharded_data_parallel fsdp.sharded_grad_scaler fsdp.wrap launcher "
    "launcher.api nn.functional optim pipelining run tensor tensor._utils tensor.experimental "
    "tensor.experimental._attention tensor.parallel tensor.placement_types utils"
)
"""Modules below ``torch.distributed`` for what groups of processes share, which one module of telegrad's serves."""
_LOOPS: Final = "associative_scan cond map scan while_loop"
_UTILITIES: Final = "_contextlib _mode_utils _python_dispatch _pytree _triton"
_OF_DYNAMO: Final = "callback compiled_autograd comptime utils"
_OF_FX: Final = "_compatibility _lazy_graph_module _pytree _symbolic_trace"
_COMPILING: Final = "functorch.aot_autograd functorch.compilers dynamo.backends.common"
_QUANTIZERS: Final = ("quantization", "ao.quantization")
_QUANTIZER_PARTS: Final = "fake_quantize observer qconfig quantize stubs"
_QUANTIZED_LAYERS: Final = ".intrinsic .qat .quantizable .quantized .intrinsic.qat .intrinsic.quantized"
_ELSEWHERE: Final = {
    **{f"distributed.{module}": "_programs.private.process_groups" for module in _OF_PROCESSES.split()},
    "distributed.checkpoint.state_dict": "_programs.state_dicts",
    **{
        f"distributed.elastic{part}": "distributed.elastic"
        for part in ("", ".multiprocessing", ".multiprocessing.errors")
    },
    "_C": "_programs.compiled_core",
    "__future__": "_programs.future_settings",
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
    "_dynamo._trace_wrapped_higher_order_op": "compiler.dynamo",
    "_dynamo.config": "compiler.dynamo.config",
    "_dynamo.exc": "compiler.exc",
    "_dynamo.testing": "compiler.testing",
    **dict.fromkeys(("_dynamo.backends", "_dynamo.backends.registry"), "compiler.backends"),
    "_dynamo.backends.debugging": "compiler.dynamo_parts.debugging",
    "_dynamo.test_case": "testing.compiled_cases",
    **{f"_dynamo.{part}": f"compiler.dynamo_parts.{part}" for part in _OF_DYNAMO.split()},
    **{f"_dynamo.{part}": "compiler.dynamo" for part in ("decorators", "eval_frame", "external_utils")},
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
    **{f"fx.{module}": f"fx.{module}" for module in _OF_FX.split()},
    "export._modes": "export._modes",
    "distributions.multivariate_normal": "distributions.multivariate",
    "profiler.profiler": "profiler",
    **dict.fromkeys(("testing._internal", "testing._internal.common_utils"), "_programs.test_cases"),
    **{f"nested.{part}": f"nested.{part}" for part in ("_internal", "_internal.nested_tensor")},
    "types": "_programs.annotation_types",
    "torch_version": "_programs.torch_version",
    "nn._reduction": "nn._reduction",
    **{f"utils.{name}": f"utils.{name}" for name in _UTILITIES.split()},
    **dict.fromkeys(("utils.benchmark.utils", "utils.benchmark.utils.common"), "utils.benchmark.measurement"),
    "utils.benchmark.utils.fuzzer": "utils.benchmark.fuzzer",
    "utils.benchmark.utils.compare": "utils.benchmark.compare",
    "utils.benchmark.utils.timer": "utils.benchmark.timers",
    "utils.data._utils": "utils.data.collate",
    "utils.data._utils.worker": "utils.data.workers",
    "utils.data._utils.collate": "utils.data.collate",
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


_CONSTANT: Final = (type, FunctionType, BuiltinFunctionType, DType)
"""What a module of PyTorch's name has itself, since it does not change; all else is read where telegrad has it."""
_FUNCTIONS_FIRST: Final = ("torch._higher_order_ops",)
"""Packages whose functions are meant by a name that a module in them has, too."""
_LISTED: Final = ("torch.distributions", "torch.optim")
"""Modules whose classes packages find by going through ``__dict__``: those that load later are there at once."""


class TorchModule(ModuleType):
    """A module of PyTorch's name that has the attributes of telegrad's modules; to set one sets it in the first."""

    def __init__(self, name: str, served_by: Sequence[ModuleType]) -> None:
        super().__init__(name, served_by[0].__doc__)
        self.__dict__["_served_by"] = served_by
        if name in _LISTED:
            self.__dict__.update((public, getattr(served_by[0], public)) for public in _public_names(served_by[0]))
        for module in reversed(served_by):
            self.__dict__.update((k, v) for k, v in vars(module).items() if self._keeps(k, v))

    def _keeps(self, name: str, value: Any) -> bool:
        """Whether a name stays what it is, and stands for no module, as PyTorch's ``_utils.collate`` does."""
        return name[0] != "_" and isinstance(value, _CONSTANT) and not self._means_module(name)

    def _means_module(self, name: str) -> bool:
        """Whether a name is first of all that of a module which telegrad keeps elsewhere."""
        if self.__name__ in _FUNCTIONS_FIRST and _is_shadowed(self.__dict__["_served_by"][0], name):
            return False
        return f"{self.__name__}.{name}".removeprefix("torch.") in _ELSEWHERE

    def __getattr__(self, name: str) -> Any:
        full_name, served_by = f"{self.__name__}.{name}", self.__dict__["_served_by"]
        if name == "__all__":
            starred = STARRED.get(self.__name__.removeprefix("torch."))
            return _public_names(served_by[0]) if starred is None else starred.split()
        if full_name == _VERSION or self._means_module(name):
            return import_module(full_name)
        for module in served_by:
            with suppress(AttributeError):
                value = getattr(module, name)
                is_module = isinstance(value, ModuleType) and value.__name__ == f"telegrad{full_name[5:]}"
                if is_module and not _origins(full_name):
                    continue  # a file of telegrad's own, which PyTorch has nothing like
                if is_module:
                    return import_module(full_name)
                if isinstance(value, _CONSTANT):
                    self.__dict__[name] = value
                return value
        if full_name == "torch.torch":
            return self
        if not name.startswith("_") and _origins(full_name):  # PyTorch has imported most of its modules beforehand
            return import_module(full_name)
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Python replaces the message of an AttributeError that `from torch import name` meets.
        kind = ImportError if _is_imported_by(sys._getframe(1)) else AttributeError
        raise kind(reason(full_name.removeprefix("torch."), dir(self)))

    def __setattr__(self, name: str, value: Any) -> None:
        first = self.__dict__["_served_by"][0]
        if isinstance(value, TorchModule) and value.__name__ == f"{self.__name__}.{name}":
            if replaced := self.__dict__.get("_replaced", {}).pop(name, None):
                setattr(first, name, replaced[0])
            if not _is_shadowed(first, name):  # importing sets a module in the one above it
                super().__setattr__(name, value)
        elif name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self._note_replaced(name, value)
            setattr(first, name, value)
            if name in self.__dict__:
                super().__setattr__(name, value)

    def _note_replaced(self, name: str, value: Any) -> None:
        """Keep what a name stands for before it is set, up to a value that it had once and is given back."""
        with suppress(AttributeError):
            replaced = self.__dict__.setdefault("_replaced", {}).setdefault(name, [])
            replaced.append(getattr(self.__dict__["_served_by"][0], name))
            returned = next((place for place, former in enumerate(replaced) if former is value), None)
            if returned is not None:
                del replaced[max(returned, 1) :]

    def __delattr__(self, name: str) -> None:
        """Undo the last setting of a name, as tests do that put something else in its place; delete one never set."""
        module, replaced = self.__dict__["_served_by"][0], self.__dict__.get("_replaced", {}).get(name)
        if replaced:
            setattr(module, name, replaced.pop() if len(replaced) > 1 else replaced[0])
            self.__dict__.pop(name, None)  # it is looked up anew
        elif name in vars(module):
            delattr(module, name)
            self.__dict__.pop(name, None)
        elif self.__dict__.pop(name, None) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the module as its name, where it is a global of a function that is sent to another process."""
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        names = {name for module in self.__dict__["_served_by"] for name in dir(module) if _is_shown(module, name)}
        return sorted({*self.__dict__, *names})


def _is_shadowed(module: ModuleType, name: str) -> bool:
    """Whether a package of telegrad's has under a module's name what is no module, as ``autograd.gradcheck`` is."""
    value = getattr(module, name, None)
    return value is not None and not isinstance(value, ModuleType)


def _is_shown(module: ModuleType, name: str) -> bool:
    """Whether a name may be asked for: not that of a file of telegrad's own, which PyTorch has nothing like."""
    value = vars(module).get(name)
    home = f"{module.__name__}.{name}"
    return not (isinstance(value, ModuleType) and value.__name__ == home) or bool(_origins(f"torch{home[8:]}"))


def _public_names(module: ModuleType) -> list[str]:
    """Return what `from module import *` imports: all that is public in a module that does not say so itself."""
    stated: list[str] | None = getattr(module, "__all__", None)
    return [name for name in dir(module) if _is_public(module, name)] if stated is None else stated


def _is_public(module: ModuleType, name: str) -> bool:
    """Whether a name and the module that defines its value are telegrad's public ones."""
    if name.startswith("_"):
        return False
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return module.__name__ in _WITH_MODULES and value.__name__.startswith("telegrad.")
    package, _, home = (getattr(value, "__module__", None) or "").partition(".")
    if package not in ("telegrad", "torch") or home.startswith("_"):
        return False
    if not home:  # a function that is in several modules, or what this module has imported
        return not isinstance(value, type)
    above = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    return f"telegrad.{home}.".startswith(f"{above}.")


def _is_imported_by(frame: FrameType) -> bool:
    """Whether a frame asks for an attribute because of a `from ... import` statement."""
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


class TorchFinder:
    """Finds ``torch`` and its modules in telegrad; they have no files of their own."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module comes from; ModuleNotFoundError says what to use instead of one that is absent."""
        if name in safetensors_torch.NAMES:
            return safetensors_torch.spec_of(name, path)
        if name.startswith("functorch.") and name not in _FUNCTORCH:
            raise ModuleNotFoundError(reason(f"_{name}").replace("torch._", "", 1), name=name)
        if name not in ("torch", *_FUNCTORCH) and not name.startswith("torch."):
            return None
        if not _origins(name):
            raise ModuleNotFoundError(reason(name.removeprefix("torch.")), name=name)
        return ModuleSpec(name, _Loader(), origin="telegrad", is_package=True)  # type: ignore[arg-type]


class _Loader:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        is_version = spec.name == _VERSION
        return TorchModule(
            spec.name,
            [version_module(_VERSION)] if is_version else [*map(import_module, _origins(spec.name))],
        )

    def exec_module(self, module: ModuleType) -> None:
        show_classes()
        if module.__name__ == "torch":
            telegrad = import_module("telegrad")
            module.__version__ = TorchVersion(f"{PYTORCH_VERSION}+telegrad.{telegrad.__version__}")  # type: ignore[attr-defined]


_VERSION: Final = "torch.version"
_FUNCTORCH: Final = {"functorch": "_programs.private.functorch_package", "functorch.compile": "compiler.aot.functions"}
"""A package that is installed with PyTorch, and where what is below it comes from."""
_WITH_MODULES: Final = frozenset(("telegrad.nn", "telegrad.nn.utils"))
"""Packages of which PyTorch's `import *` brings the modules too."""


def _origins(name: str) -> list[str]:
    """Return the modules of telegrad that serve one of PyTorch's, none if there is none."""
    if name in ("torch", _VERSION):
        return ["telegrad", "telegrad._programs.private.top_level"]
    if name in _FUNCTORCH:
        return [f"telegrad.{_FUNCTORCH[name]}"]
    below = name.removeprefix("torch.")
    if below in _ELSEWHERE:
        return [f"telegrad.{_ELSEWHERE[below]}"]
    above, _, last = below.rpartition(".")
    origins = [] if last.startswith("_") or not _is_there(f"telegrad.{below}") else [f"telegrad.{below}"]
    if last in _PARTS.get(above, "").split():
        origins += _origins(f"torch.{above}" if above else "torch")
    return origins


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a module above it is missing, or is no package
        return False
    except ValueError:  # it is loaded, and was made rather than found, so it has no specification
        return True


def serve_torch() -> None:
    """Have ``import torch`` give telegrad from here on; nothing happens where it does already.

    Raises ImportError if PyTorch itself was imported before.
    """
    present = sys.modules.get("torch")
    if present is None:
        sys.meta_path.insert(0, TorchFinder)
        show_as("torch")
        show_classes()
        import_module("torch")
        safetensors_torch.adapt_loaded()
    elif not isinstance(present, TorchModule):
        raise ImportError("PyTorch is imported in this process already; call telegrad.as_torch() before `import torch`")
