"""Objects that take whatever settings of PyTorch's compiler a program sets, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_OFF: Final = (
    "allow_empty_graphs allow_ignore_mark_dynamic allow_rnn allow_unspec_int_on_nn_module "
    "automatic_dynamic_exclusion_guard caching_precompile capture_dynamic_output_shape_ops "
    "capture_profiler_record_function capture_scalar_outputs compiled_autograd "
    "constant_fold_autograd_profiler_enabled cprofile cudagraph_backend_keep_input_mutation "
    "cudagraph_backend_support_input_mutation debug_disable_compile_counter "
    "debug_force_graph_break_on_leaf_return debug_force_nested_calls disable do_not_emit_runtime_asserts "
    "dont_skip_tracing dynamo_profiler enable_compiler_collectives enable_cpp_symbolic_shape_guards "
    "enable_invoke_subgraph_regional_compile enable_p2p_compilation enable_trace_load_build_class "
    "enable_trace_unittest error_on_dynamo_callback_in_fullgraph_compiled_code error_on_recompile "
    "fail_on_cache_limit_hit fail_on_recompile_limit_hit fake_tensor_cache_crosscheck_enabled "
    "force_compile_during_fx_trace force_unspec_int_unbacked_size_like_on_torchrec_kjt generate_pycode "
    "graph_deduplication_lint inline_invoke_subgraph install_free_tensors leaf_function_check_escaped_gradients "
    "leaf_function_validate_outputs log_graph_in_out_metadata nested_graph_breaks only_allow_pt2_compliant_ops "
    "optimize_ddp_lazy_compile prefer_deferred_runtime_asserts_over_guards prepare_freezing "
    "raise_on_unsafe_aot_autograd record_compile_time_instruction_count replay_record_enabled repro_forward_only "
    "repro_ignore_non_fp skip_fwd_side_effects_in_bwd_under_checkpoint skip_guards_on_constant_func_defaults "
    "specialize_float specialize_int strict_precompile suppress_errors trace_autograd_ops "
    "track_nodes_for_deduplication use_graph_deduplication use_numpy_random_stream "
    "use_recursive_dict_tags_for_guards verbose verify_correctness wrap_top_frame"
)
_ON: Final = (
    "assume_dunder_attributes_remain_unchanged assume_static_by_default automatic_dynamic_local_pgo "
    "automatic_dynamic_shapes capture_autograd_function capture_func_transforms capture_sparse_compute "
    "dynamic_shapes enable_aot_compile enable_cpp_framelocals_guard_eval enable_cpp_guard_manager "
    "enable_dynamo_decompositions enable_faithful_generator_behavior enable_trace_contextlib "
    "error_on_nested_fx_trace error_on_nested_jit_trace fake_tensor_cache_enabled "
    "fake_tensor_disable_inference_mode force_nn_module_property_static_shapes force_parameter_static_shapes "
    "graph_break_on_nn_param_ctor guard_nn_modules guard_nn_modules_using_dict_tags inline_inbuilt_nn_modules "
    "inline_single_use_invoke_subgraph inline_torch_dispatch_torch_compile install_free_tensors_for_export "
    "issue_3_13_0_warning log_compilation_metrics optimize_ddp raise_on_ctx_manager_usage record_runtime_overhead "
    "replay_side_effects report_guard_failures rewrite_assert_with_torch_assert run_gc_after_compile "
    "same_two_models_use_fp64 skip_code_recursive_on_cache_limit_hit skip_code_recursive_on_recompile_limit_hit "
    "skip_fsdp_guards skip_nnmodule_hook_guards skip_no_tensor_aliasing_guards_on_parameters "
    "skip_tensor_guards_with_matching_dict_tags skip_torchrec trace_numpy use_lamba_guard_for_object_aliasing "
    "use_lazy_graph_module"
)
_NONE: Final = (
    "automatic_dynamic_remote_pgo dead_code_elimination invalidate_compile_context_weakrefs log_file_name "
    "pt2_compile_id_prefix repro_after"
)
_SETS: Final = (
    "allowed_functions_module_string_ignorelist ignore_logger_methods ignore_logging_functions "
    "nontraceable_tensor_subclasses reorderable_logging_functions traceable_tensor_subclasses"
)
DYNAMO: Final[dict[str, Any]] = {
    "accumulated_cache_size_limit": 256, "accumulated_recompile_limit": 256, "cache_size_limit": 8,
    "minimum_call_count": 1, "recompile_limit": 8, "repro_level": 2, "repro_tolerance": 0.001,
    "automatic_dynamic_shapes_mark_as": "dynamic",
    "base_dir": "", "debug_dir_root": "torch_compile_debug", "numpy_default_complex": "complex128",
    "numpy_default_float": "float64", "numpy_default_int": "int64", "skipfiles_inline_module_allowlist": {},
    "compiled_autograd_kwargs_override": {}, "debug_backend_override": "", "debug_dynamo_config_override": "",
    "debug_inductor_config_override": "", "side_effect_replay_policy": "info",
    "max_saved_pointers_for_recursive_dict_tags_check": 256,
    **dict.fromkeys(_OFF.split(), False), **dict.fromkeys(_ON.split(), True), **dict.fromkeys(_NONE.split()),
    **{name: set() for name in _SETS.split()},
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


COMPILER: Final[dict[str, Any]] = {
    "job_id": None, "cache_key_tag": "", "dynamic_sources": "", "dynamic_values": "", "unbacked_sources": "",
    "force_cudagraph_gc": False, "force_disable_caches": False,
}  # fmt: skip
"""What ``torch.compiler.config`` has for itself."""
SHARED: Final = (
    "accumulated_recompile_limit", "allow_unspec_int_on_nn_module", "assume_static_by_default",
    "automatic_dynamic_shapes", "capture_dynamic_output_shape_ops", "capture_scalar_outputs", "dynamic_shapes",
    "enable_cpp_symbolic_shape_guards", "fail_on_recompile_limit_hit", "log_file_name", "recompile_limit",
    "reorderable_logging_functions", "skip_tensor_guards_with_matching_dict_tags", "verbose", "wrap_top_frame",
)  # fmt: skip
"""Settings of ``torch._dynamo.config`` that ``torch.compiler.config`` shares."""


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

    def shallow_copy_dict(self) -> dict[str, Any]:
        """Return a dict with the present values of all settings that have one, by name."""
        return {name: value for name, value in vars(self).items() if name[0] != "_" and not isinstance(value, Config)}

    to_dict = get_config_copy = get_serializable_config_copy = shallow_copy_dict

    save_config = shallow_copy_dict

    def load_config(self, maybe_pickled_config: dict[str, Any]) -> None:
        """Give settings the values of a dict, such as ``save_config`` has returned."""
        for name, value in maybe_pickled_config.items():
            setattr(self, name, value)

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


class _DynamoConfig(Config):
    """``torch._dynamo.config``, whose settings are all known: as in PyTorch there are no others."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch._dynamo.config.{name} does not exist")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in DYNAMO and not name.startswith("__"):
            raise AttributeError(f"torch._dynamo.config.{name} does not exist")
        super().__setattr__(name, value)

    def _set(self, name: str, value: Any) -> tuple[Any, str, Any]:
        before = vars(self).get(name)
        setattr(self, name, value)
        return self, name, before


dynamo_config: Final = _DynamoConfig.registered("telegrad.compiler.dynamo.config", **DYNAMO)
"""``torch._dynamo.config``."""


class _CompilerConfig(Config):
    """``torch.compiler.config``, which shares settings with ``torch._dynamo.config``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dynamo_config, name) if name in SHARED else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SHARED:
            setattr(dynamo_config, name, value)
        else:
            super().__setattr__(name, value)


compiler_config: Final = _CompilerConfig.registered("telegrad.compiler.public_config", **COMPILER)
"""``torch.compiler.config``."""


def recompile_limit() -> int:
    """Return how many graphs of a function a backend is given, by the newer or the older name of the setting."""
    newer, older = dynamo_config.recompile_limit, dynamo_config.cache_size_limit
    return int(newer if newer != DYNAMO["recompile_limit"] else older)
