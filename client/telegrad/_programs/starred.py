"""What ``from torch.MODULE import *`` imports, where telegrad's own module has other names beside or elsewhere.

PyTorch's modules list their public names in ``__all__``. Those of telegrad that serve several of them, or keep in other
files what a module shows, would answer with what they happen to contain.
"""

from __future__ import annotations

from typing import Final

STARRED: Final = {
    "amp.autocast_mode": "autocast custom_bwd custom_fwd is_autocast_available",
    "amp.grad_scaler": "GradScaler OptState",
    "autograd": (
        "Function NestedIOFunction Variable backward detect_anomaly enable_grad enforce_grad_layout_policy grad "
        "grad_mode gradcheck gradgradcheck inference_mode no_grad set_detect_anomaly set_grad_enabled "
        "set_multithreading_enabled variable"
    ),
    "autograd.grad_mode": (
        "enable_grad enforce_grad_layout_policy inference_mode no_grad set_grad_enabled set_multithreading_enabled"
    ),
    "autograd.profiler": "EventList FunctionEvent KinetoStepTracker emit_itt emit_nvtx profile record_function",
    "autograd.profiler_util": "EventList FunctionEvent FunctionEventAvg Interval Kernel",
    "autograd.variable": "Variable VariableMeta",
    "backends.cuda": (
        "SDPAParams can_use_cudnn_attention can_use_efficient_attention can_use_flash_attention cudnn_sdp_enabled "
        "cufft_plan_cache enable_cudnn_sdp enable_flash_sdp enable_math_sdp enable_mem_efficient_sdp "
        "flash_sdp_enabled is_built is_flash_attention_available math_sdp_enabled matmul mem_efficient_sdp_enabled "
        "preferred_blas_library preferred_linalg_library sdp_kernel"
    ),
    "backends.cusparselt": "is_available",
    "backends.nnpack": "flags is_available",
    "compiler": (
        "allow_in_graph assume_constant_result compile config cudagraph_mark_step_begin disable get_default_backend "
        "is_compiling is_dynamo_compiling is_exporting keep_portable_guards_unsafe keep_tensor_guards_unsafe "
        "list_backends load_cache_artifacts load_compiled_function nested_compile_region reset save_cache_artifacts "
        "set_default_backend set_enable_guard_collectives set_stance skip_all_guards_unsafe "
        "skip_guard_on_all_nn_modules_unsafe skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe "
        "substitute_in_graph wrap_numpy"
    ),
    "compiler.config": (
        "accumulated_recompile_limit allow_unspec_int_on_nn_module assume_static_by_default automatic_dynamic_shapes "
        "capture_dynamic_output_shape_ops capture_scalar_outputs dynamic_shapes enable_cpp_symbolic_shape_guards "
        "fail_on_recompile_limit_hit force_disable_caches job_id log_file_name recompile_limit "
        "reorderable_logging_functions skip_tensor_guards_with_matching_dict_tags verbose wrap_top_frame"
    ),
    "cuda": (
        "BFloat16Tensor BoolTensor ByteTensor CUDAGraph CUDAPluggableAllocator CharTensor CudaError DoubleTensor "
        "Event ExternalStream FloatTensor GreenContext HalfTensor IntTensor LongTensor MemPool ShortTensor Stream "
        "StreamContext amp caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
        "caching_allocator_enable can_device_access_peer change_current_allocator check_error clock_rate cudaStatus "
        "cudart current_blas_handle current_device current_solver_handle current_stream default_generators "
        "default_stream device device_count device_memory_used device_of empty_cache get_allocator_backend "
        "get_arch_list get_device_capability get_device_name get_device_properties get_gencode_flags "
        "get_per_process_memory_fraction get_rng_state get_rng_state_all get_stream_from_external get_sync_debug_mode "
        "graph graph_pool_handle graphs host_memory_stats host_memory_stats_as_nested_dict init initial_seed "
        "ipc_collect is_available is_bf16_supported is_current_stream_capturing is_initialized is_tf32_supported "
        "list_gpu_processes make_graphed_callables manual_seed manual_seed_all max_memory_allocated max_memory_cached "
        "max_memory_reserved mem_get_info memory memory_allocated memory_cached memory_reserved memory_snapshot "
        "memory_stats memory_stats_as_nested_dict memory_summary memory_usage nvtx power_draw profiler random "
        "reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated "
        "reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats seed seed_all set_device "
        "set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream set_sync_debug_mode stream "
        "streams synchronize temperature tunable use_mem_pool utilization"
    ),
    "cuda.amp.autocast_mode": "autocast custom_bwd custom_fwd",
    "cuda.amp.common": "amp_definitely_not_available",
    "cuda.amp.grad_scaler": "GradScaler",
    "cuda.memory": (
        "CUDAPluggableAllocator MemPool caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
        "caching_allocator_enable change_current_allocator empty_cache get_allocator_backend "
        "get_per_process_memory_fraction host_memory_stats host_memory_stats_as_nested_dict list_gpu_processes "
        "max_memory_allocated max_memory_cached max_memory_reserved mem_get_info memory_allocated memory_cached "
        "memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary "
        "reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated "
        "reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats set_per_process_memory_fraction "
        "use_mem_pool"
    ),
    "cuda.tunable": (
        "enable get_filename get_max_tuning_duration get_max_tuning_iterations get_results get_validators is_enabled "
        "read_file set_filename set_max_tuning_duration set_max_tuning_iterations tuning_enable tuning_is_enabled"
    ),
    "distributions.bernoulli": "Bernoulli",
    "distributions.beta": "Beta",
    "distributions.binomial": "Binomial",
    "distributions.categorical": "Categorical",
    "distributions.cauchy": "Cauchy",
    "distributions.chi2": "Chi2",
    "distributions.constraint_registry": "ConstraintRegistry biject_to transform_to",
    "distributions.constraints": (
        "Constraint MixtureSameFamilyConstraint boolean cat corr_cholesky dependent dependent_property greater_than "
        "greater_than_eq half_open_interval independent integer_interval interval is_dependent less_than "
        "lower_cholesky lower_triangular multinomial nonnegative nonnegative_integer one_hot positive "
        "positive_definite positive_integer positive_semidefinite real real_vector simplex square stack symmetric "
        "unit_interval"
    ),
    "distributions.continuous_bernoulli": "ContinuousBernoulli",
    "distributions.dirichlet": "Dirichlet",
    "distributions.distribution": "Distribution",
    "distributions.exp_family": "ExponentialFamily",
    "distributions.exponential": "Exponential",
    "distributions.fishersnedecor": "FisherSnedecor",
    "distributions.gamma": "Gamma",
    "distributions.generalized_pareto": "GeneralizedPareto",
    "distributions.geometric": "Geometric",
    "distributions.gumbel": "Gumbel",
    "distributions.half_cauchy": "HalfCauchy",
    "distributions.half_normal": "HalfNormal",
    "distributions.independent": "Independent",
    "distributions.inverse_gamma": "InverseGamma",
    "distributions.kl": "kl_divergence register_kl",
    "distributions.kumaraswamy": "Kumaraswamy",
    "distributions.laplace": "Laplace",
    "distributions.lkj_cholesky": "LKJCholesky",
    "distributions.log_normal": "LogNormal",
    "distributions.logistic_normal": "LogisticNormal",
    "distributions.lowrank_multivariate_normal": "LowRankMultivariateNormal",
    "distributions.mixture_same_family": "MixtureSameFamily",
    "distributions.multinomial": "Multinomial",
    "distributions.multivariate_normal": "MultivariateNormal",
    "distributions.negative_binomial": "NegativeBinomial",
    "distributions.normal": "Normal",
    "distributions.one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough",
    "distributions.pareto": "Pareto",
    "distributions.poisson": "Poisson",
    "distributions.relaxed_bernoulli": "RelaxedBernoulli",
    "distributions.relaxed_categorical": "RelaxedOneHotCategorical",
    "distributions.studentT": "StudentT",
    "distributions.transformed_distribution": "TransformedDistribution",
    "distributions.transforms": (
        "AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform "
        "CumulativeDistributionTransform ExpTransform IndependentTransform LowerCholeskyTransform "
        "PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform SoftmaxTransform "
        "SoftplusTransform StackTransform StickBreakingTransform TanhTransform Transform identity_transform"
    ),
    "distributions.uniform": "Uniform",
    "distributions.utils": (
        "broadcast_all clamp_probs lazy_property logits_to_probs probs_to_logits tril_matrix_to_vec vec_to_tril_matrix"
    ),
    "distributions.von_mises": "VonMises",
    "distributions.weibull": "Weibull",
    "distributions.wishart": "Wishart",
    "export": (
        "AdditionalInputs Dim ExportGraphSignature ExportedProgram ModuleCallEntry ModuleCallSignature "
        "ShapesCollection UnflattenedModule default_decompositions dims draft_export export load register_dataclass "
        "save unflatten"
    ),
    "export.dynamic_shapes": "AdditionalInputs Dim dims",
    "export.exported_program": "ExportedProgram ModuleCallEntry ModuleCallSignature default_decompositions",
    "export.graph_signature": (
        "ConstantArgument ExportGraphSignature InputKind InputSpec OutputKind OutputSpec SymIntArgument TensorArgument"
    ),
    "export.unflatten": "UnflattenedModule unflatten",
    "fft": (
        "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq "
        "rfftn"
    ),
    "functional": (
        "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist "
        "chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot unique "
        "unique_consecutive unravel_index"
    ),
    "fx.experimental.proxy_tensor": "get_proxy_mode make_fx",
    "fx.experimental.symbolic_shapes": (
        "ShapeEnv StatelessSymbolicContext free_symbols guard_float guard_int guard_or_false guard_or_true "
        "guard_scalar guard_size_oblivious has_free_symbols has_free_unbacked_symbols has_symbolic_sizes_strides "
        "is_concrete_bool is_concrete_float is_concrete_int is_symbol_binding_fx_node statically_known_false "
        "statically_known_true sym_and sym_eq sym_or"
    ),
    "jit": (
        "Attribute Error Future ScriptFunction ScriptModule annotate export fork freeze ignore interface isinstance "
        "load optimize_for_inference save script script_if_tracing set_fusion_strategy trace trace_module unused wait"
    ),
    "jit.annotations": "Any BroadcastingList1 BroadcastingList2 BroadcastingList3 Dict List Tuple",
    "library": (
        "Library custom_op define fallthrough_kernel get_ctx get_kernel impl impl_abstract infer_schema "
        "register_autocast register_fake register_torch_dispatch register_vmap triton_op wrap_triton"
    ),
    "multiprocessing": (
        "Array AuthenticationError Barrier BoundedSemaphore BufferTooShort Condition Event JoinableQueue Lock Manager "
        "Pipe Pool Process ProcessError Queue RLock RawArray RawValue Semaphore SimpleQueue TimeoutError Value "
        "active_children allow_connection_pickling cpu_count current_process freeze_support "
        "get_all_sharing_strategies get_all_start_methods get_context get_logger get_sharing_strategy "
        "get_start_method log_to_stderr parent_process reducer set_executable set_forkserver_preload "
        "set_sharing_strategy set_start_method"
    ),
    "nn.attention.flex_attention": (
        "AuxOutput AuxRequest BlockMask FlexKernelOptions and_masks create_block_mask create_mask flex_attention "
        "noop_mask or_masks"
    ),
    "nn.modules.activation": (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
        "MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
        "Softsign Tanh Tanhshrink Threshold"
    ),
    "nn.modules.lazy": "LazyModuleMixin",
    "nn.modules.loss": (
        "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss "
        "HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss MultiLabelMarginLoss "
        "MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss SoftMarginLoss "
        "TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "nn.modules.module": (
        "Module register_module_backward_hook register_module_buffer_registration_hook register_module_forward_hook "
        "register_module_forward_pre_hook register_module_full_backward_hook register_module_full_backward_pre_hook "
        "register_module_module_registration_hook register_module_parameter_registration_hook"
    ),
    "nn.modules.utils": "consume_prefix_in_state_dict_if_present",
    "nn.parallel": "DataParallel DistributedDataParallel data_parallel gather parallel_apply replicate scatter",
    "nn.parallel.data_parallel": "DataParallel data_parallel",
    "nn.parallel.replicate": "replicate",
    "nn.parameter": "Buffer Parameter UninitializedBuffer UninitializedParameter UninitializedTensorMixin is_lazy",
    "nn.utils": (
        "clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ convert_conv2d_weight_memory_format "
        "convert_conv3d_weight_memory_format fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval "
        "fuse_linear_bn_weights get_total_norm parameters_to_vector parametrizations parametrize remove_spectral_norm "
        "remove_weight_norm rnn skip_init spectral_norm stateless vector_to_parameters weight_norm"
    ),
    "nn.utils.clip_grad": "clip_grad_norm clip_grad_norm_ clip_grad_value_",
    "nn.utils.memory_format": "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format",
    "nn.utils.weight_norm": "WeightNorm remove_weight_norm weight_norm",
    "onnx": "ONNXProgram export is_in_onnx_export",
    "optim.adadelta": "Adadelta adadelta",
    "optim.adagrad": "Adagrad adagrad",
    "optim.adam": "Adam adam",
    "optim.adamax": "Adamax adamax",
    "optim.adamw": "AdamW adamw",
    "optim.asgd": "ASGD asgd",
    "optim.lbfgs": "LBFGS",
    "optim.nadam": "NAdam nadam",
    "optim.optimizer": "Optimizer register_optimizer_step_post_hook register_optimizer_step_pre_hook",
    "optim.radam": "RAdam radam",
    "optim.rmsprop": "RMSprop rmsprop",
    "optim.rprop": "Rprop rprop",
    "optim.sgd": "SGD sgd",
    "optim.sparse_adam": "SparseAdam",
    "overrides": (
        "enable_reentrant_dispatch get_ignored_functions get_overridable_functions get_testing_overrides "
        "handle_torch_function has_torch_function is_tensor_like is_tensor_method_or_property redispatch_function "
        "resolve_name wrap_torch_function"
    ),
    "profiler": (
        "DeviceType ExecutionTraceObserver ProfilerAction ProfilerActivity kineto_available profile record_function "
        "schedule supported_activities tensorboard_trace_handler"
    ),
    "profiler.profiler": (
        "ExecutionTraceObserver ProfilerAction profile schedule supported_activities tensorboard_trace_handler"
    ),
    "random": "fork_rng get_rng_state initial_seed manual_seed seed set_rng_state thread_safe_generator",
    "serialization": (
        "add_safe_globals clear_safe_globals get_safe_globals get_unsafe_globals_in_checkpoint load safe_globals save"
    ),
    "signal": "windows",
    "sparse": (
        "SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT SparseSemiStructuredTensorCUTLASS addmm "
        "as_sparse_gradcheck check_sparse_tensor_invariants log_softmax mm softmax sum to_sparse_semi_structured"
    ),
    "special": (
        "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u "
        "chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc "
        "gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l "
        "legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1 "
        "modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round scaled_modified_bessel_k0 "
        "scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
        "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc softmax spherical_bessel_j0 xlog1py xlogy "
        "zeta"
    ),
    "storage": "TypedStorage UntypedStorage",
    "types": "Device FileLike Number",
    "utils.benchmark.utils.compare": "Compare",
    "utils.benchmark.utils.fuzzer": "FuzzedParameter FuzzedTensor Fuzzer ParameterAlias",
    "utils.benchmark.utils.timer": "Language Timer timer",
    "utils.cpp_extension": (
        "BuildExtension CUDAExtension CppExtension SyclExtension check_compiler_is_gcc check_compiler_ok_for_platform "
        "get_compiler_abi_compatibility_and_version get_cxx_compiler get_default_build_root include_paths "
        "is_ninja_available library_paths load load_inline remove_extension_h_precompiler_headers "
        "verify_ninja_availability"
    ),
    "utils.data": (
        "BatchSampler ChainDataset ConcatDataset DataLoader Dataset DistributedSampler IterDataPipe IterableDataset "
        "MapDataPipe RandomSampler Sampler SequentialSampler StackDataset Subset SubsetRandomSampler TensorDataset "
        "WeightedRandomSampler default_collate default_convert functional_datapipe get_worker_info random_split"
    ),
    "utils.data.dataloader": "DataLoader default_collate default_convert get_worker_info",
    "utils.data.datapipes.datapipe": "IterDataPipe MapDataPipe",
    "utils.data.datapipes.iter": (
        "Batcher Collator Concater Demultiplexer Filter Forker Grouper IterableWrapper Mapper Multiplexer "
        "ShardingFilter Shuffler UnBatcher Zipper"
    ),
    "utils.data.datapipes.iter.callable": "CollatorIterDataPipe MapperIterDataPipe",
    "utils.data.datapipes.iter.combinatorics": "ShufflerIterDataPipe",
    "utils.data.datapipes.iter.combining": "ConcaterIterDataPipe ZipperIterDataPipe",
    "utils.data.datapipes.iter.grouping": "BatcherIterDataPipe UnBatcherIterDataPipe",
    "utils.data.datapipes.iter.selecting": "FilterIterDataPipe",
    "utils.data.datapipes.iter.sharding": "ShardingFilterIterDataPipe",
    "utils.data.datapipes.iter.utils": "IterableWrapperIterDataPipe",
    "utils.data.datapipes.map": "Batcher Concater Mapper SequenceWrapper Shuffler Zipper",
    "utils.data.datapipes.map.callable": "MapperMapDataPipe",
    "utils.data.datapipes.map.combinatorics": "",
    "utils.data.datapipes.map.combining": "ConcaterMapDataPipe ZipperMapDataPipe",
    "utils.data.datapipes.map.grouping": "BatcherMapDataPipe",
    "utils.data.datapipes.map.utils": "SequenceWrapperMapDataPipe",
    "utils.data.dataset": (
        "ChainDataset ConcatDataset Dataset IterableDataset StackDataset Subset TensorDataset random_split"
    ),
    "utils.data.distributed": "DistributedSampler",
    "utils.data.sampler": (
        "BatchSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler WeightedRandomSampler"
    ),
    "utils.dlpack": "from_dlpack",
    "utils.hooks": "RemovableHandle",
    "utils.module_tracker": "ModuleTracker",
    "utils.tensorboard.writer": "FileWriter SummaryWriter",
    "version": "__version__ cuda debug git_version hip xpu",
    "quantization": (
        "DeQuantStub HistogramObserver ObserverBase QConfig QuantStub convert default_observer "
        "default_per_channel_weight_observer default_weight_observer fuse_modules prepare prepare_qat "
        "prepare_qat quantize quantize_dynamic"
    ),
    "ao.quantization": (
        "DeQuantStub FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FixedQParamsObserver "
        "FusedMovingAvgObsFakeQuantize HistogramObserver MinMaxObserver MovingAverageMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerChannelMinMaxObserver "
        "PlaceholderObserver QConfig QuantStub RecordingObserver UniformQuantizationObserverBase convert "
        "default_observer default_per_channel_weight_observer default_weight_observer fuse_modules "
        "fuse_modules_qat get_default_qat_qconfig get_default_qconfig prepare prepare_qat quantize "
        "quantize_dynamic"
    ),
    "ao.quantization.fake_quantize": (
        "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize"
    ),
    "ao.quantization.observer": (
        "FixedQParamsObserver HistogramObserver MinMaxObserver MovingAverageMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerChannelMinMaxObserver "
        "PlaceholderObserver RecordingObserver UniformQuantizationObserverBase default_observer "
        "default_per_channel_weight_observer default_weight_observer"
    ),
    "ao.quantization.qconfig": "QConfig get_default_qat_qconfig get_default_qconfig",
    "ao.quantization.quantize": "convert prepare prepare_qat quantize quantize_dynamic",
    "ao.quantization.stubs": "DeQuantStub QuantStub",
    **dict.fromkeys(
        ("nn.intrinsic", "nn.intrinsic.modules"),
        (
            "BNReLU2d BNReLU3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d "
            "ConvReLU2d ConvReLU3d LinearBn1d LinearReLU"
        ),
    ),
    **dict.fromkeys(
        ("nn.qat", "nn.qat.modules", "ao.nn.qat.modules"),
        "Conv1d Conv2d Conv3d Embedding EmbeddingBag Linear",
    ),
    **dict.fromkeys(
        ("nn.quantizable.modules", "ao.nn.quantizable.modules"),
        "LSTM LSTMCell MultiheadAttention",
    ),
    **dict.fromkeys(
        ("nn.quantized", "nn.quantized.modules", "ao.nn.quantized", "ao.nn.quantized.modules"),
        (
            "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d "
            "DeQuantize Dropout ELU Embedding EmbeddingBag FXFloatFunctional FloatFunctional GroupNorm Hardswish "
            "InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm LeakyReLU Linear MultiheadAttention "
            "PReLU QFunctional Quantize ReLU6 Sigmoid Softmax"
        ),
    ),
    **dict.fromkeys(
        ("nn.intrinsic.qat.modules", "ao.nn.intrinsic.qat.modules"),
        (
            "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d "
            "LinearBn1d LinearReLU"
        ),
    ),
    **dict.fromkeys(
        ("nn.intrinsic.quantized", "nn.intrinsic.quantized.modules"),
        "BNReLU2d BNReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU",
    ),
    **dict.fromkeys(
        ("ao.nn.intrinsic", "ao.nn.intrinsic.modules"),
        (
            "BNReLU2d BNReLU3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d "
            "ConvReLU2d ConvReLU3d LinearBn1d LinearLeakyReLU LinearReLU LinearTanh"
        ),
    ),
    **dict.fromkeys(
        ("ao.nn.intrinsic.quantized", "ao.nn.intrinsic.quantized.modules"),
        "BNReLU2d BNReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearLeakyReLU LinearReLU LinearTanh",
    ),
}
"""Names by the module below ``torch``, separated by blanks; each is there."""
