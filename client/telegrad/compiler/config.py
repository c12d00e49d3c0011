"""Objects that take whatever settings of PyTorch's compiler a program sets, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

DYNAMO: Final[dict[str, Any]] = {
    "accumulated_cache_size_limit": 256, "accumulated_recompile_limit": 256, "assume_static_by_default": True,
    "automatic_dynamic_shapes": True, "cache_size_limit": 8, "dynamic_shapes": True, "guard_nn_modules": True,
    "inline_inbuilt_nn_modules": True, "optimize_ddp": True, "recompile_limit": 8, "trace_numpy": True,
    "ignore_logging_functions": set(), "reorderable_logging_functions": set(), "traceable_tensor_subclasses": set(),
    **dict.fromkeys((
        "allow_rnn", "capture_dynamic_output_shape_ops", "capture_scalar_outputs", "compiled_autograd", "disable",
        "error_on_recompile", "fail_on_recompile_limit_hit", "nested_graph_breaks", "specialize_float",
        "specialize_int", "suppress_errors", "verbose",
    ), False),
}  # fmt: skip
"""What programs read of ``torch._dynamo.config`` before they set it."""
INDUCTOR: Final[dict[str, Any]] = {
    "allow_buffer_reuse": True, "autotune_local_cache": True, "dynamic_scale_rblock": True, "epilogue_fusion": True,
    "fx_graph_cache": True, "fx_graph_remote_cache": None, "implicit_fallbacks": True, "inplace_buffers": True,
    "keep_output_stride": True, "layout_optimization": True, "max_autotune_gemm_backends": "ATEN,TRITON,CPP",
    "pattern_matcher": True, "shape_padding": True, "size_asserts": True, "split_reductions": True,
    **dict.fromkeys((
        "aggressive_fusion", "combo_kernels", "conv_1x1_as_mm", "coordinate_descent_tuning", "cpp_wrapper", "debug",
        "emulate_precision_casts", "fallback_random", "force_disable_caches", "freezing", "max_autotune",
        "max_autotune_gemm", "max_autotune_pointwise", "memory_planning", "nan_asserts",
    ), False),
    "triton.cudagraphs": False, "triton.cudagraph_trees": True, "triton.unique_kernel_names": True,
    "triton.persistent_reductions": True, "trace.enabled": False, "cpp.simdlen": None, "cpp.threads": -1,
}  # fmt: skip
"""The same of ``torch._inductor.config``."""
FUNCTORCH: Final[dict[str, Any]] = {
    "activation_memory_budget": 1.0, "backward_pass_autocast": "same_as_forward", "cse": True, "donated_buffer": True,
    "enable_autograd_cache": True, "treat_parameters_as_free_to_save": True, "view_replay_for_aliased_outputs": True,
}  # fmt: skip
"""The same of ``torch._functorch.config``."""


class Config(ModuleType):
    """Settings of a compiler that is not there. Any can be set; one that was not set is a false object of this kind."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        inner = Config(f"{self.__name__}.{name}")
        setattr(self, name, inner)
        return inner

    @classmethod
    def registered(cls, name: str, **settings: Any) -> Config:
        """Return an object that ``import name`` gives, with these settings."""
        sys.modules[name] = config = cls(name)
        for setting, value in settings.items():
            config._set(setting, value)
        return config

    def __bool__(self) -> bool:
        return False

    @contextmanager
    def patch(self, *settings: Any, **named: Any) -> Iterator[None]:
        """Give settings other values for a block or a function: those of a dict, one with its value, or by name."""
        changes = {**(settings[0] if len(settings) == 1 else dict([settings] if settings else [])), **named}
        before = [self._set(name, value) for name, value in changes.items()]
        try:
            yield
        finally:
            for owner, last, value in reversed(before):
                setattr(owner, last, value)

    def _set(self, name: str, value: Any) -> tuple[Any, str, Any]:
        """Set what a name with dots stands for; returns whose attribute it is, and what it was."""
        *path, last = name.split(".")
        owner: Any = self
        for part in path:
            owner = getattr(owner, part)
        before = getattr(owner, last)
        setattr(owner, last, value)
        return owner, last, before


dynamo_config: Final = Config.registered("telegrad.compiler.dynamo.config", **DYNAMO)
"""``torch._dynamo.config``."""


def recompile_limit() -> int:
    """Return how many graphs of a function a backend is given, by the newer or the older name of the setting."""
    newer, older = dynamo_config.recompile_limit, dynamo_config.cache_size_limit
    return int(newer if newer != DYNAMO["recompile_limit"] else older)
