"""What the operator tests must know beyond the table: names that differ, and PyTorch features that are out of scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from telegrad_protocol.ops import PUBLIC

ALIASES: dict[str, str] = {
    "where": "in test_pointwise",  # the database calls the method, whose first argument is the function's second
    "zero_": "in test_creation",  # the database hides that it modifies a copy
    "polygamma": "_polygamma",  # the order of the method's arguments
    "special.polygamma": "_polygamma",
    "nn.functional.unfold": "im2col",  # not the method of tensors, which has the same last name
    "nn.functional.embedding": "in test_indexing",  # the database gives the table first, the function takes it second
}
"""PyTorch's name in its operator database -> ours, where they differ."""

WRONG_GRADIENTS: set[str] = {"as_strided_scatter"}
"""PyTorch's gradient of ``input`` keeps what was overwritten, drops the rest; test_views takes finite differences."""

COVERED_ELSEWHERE: set[str] = {
    "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_", "_cross_entropy_in_float32",
    "_scatter_strided", "repeat_interleave.repeats", "copy_.Scalar", "alias", "_unversioned", "detach",
    "embedding", "_embedding", "embedding_dense_backward",
    "embedding_renorm_", "moveaxis", "swapaxes", "swapdims", "concat", "concatenate", "index", "put", "native_dropout",
    "feature_dropout", "_fused_sgd_", "_fused_adam_", "_fused_adamw_", "_foreach_zero_", "_foreach_clamp_",
    "_total_norm", "_clip_to_norm_", "_in_layout", "_to_copy", "as_strided_scatter", "_layer_norm",
    "_layer_norm_backward", "_layer_norm_weight_backward", "_layer_norm_gradients", "_rms_norm", "_rms_norm_gradients",
    "_batch_norm", "_batch_norm_gradients", "_update_running_statistics_", "_group_norm", "_group_norm_gradients",
    "_nll_loss_forward", "_nll_loss_backward", "_softmax_backward_data", "_log_softmax_backward_data",
    "where", "zero_", "copy_", "fill_", "_tanh_backward", "_sigmoid_backward", "_relu_backward", "_gelu_backward",
    "_silu_backward",
    "bernoulli_", "uniform_", "normal_", "exponential_", "random_", "randperm", "rand",
    "_softmax_cross_entropy", "_softmax_cross_entropy_backward", "_cross_entropy", "_cross_entropy_backward",
    "_linear_backward", "_linear_recurrence",
    "_huber_error", "_bce", "_bce_with_logits", "convolution", "_convolution_weight_backward", "fold",
    "_attention", "_attention_backward", "_attention_dropout", "_attention_dropout_backward",
    "_max_pool", "_max_pool_backward", "_avg_pool", "_avg_pool_backward",
    "_adaptive_avg_pool", "_adaptive_avg_pool_backward", "_adaptive_max_pool",
    "_rnn", "_rnn_layer", "_rnn_sequence", "_rnn_sequence_backward", "_flat_weights", "_cudnn_rnn",
    "_cudnn_rnn_backward", "_pad_border",
    "_ctc_loss", "_ctc_loss_backward",
}  # fmt: skip
"""Operations without a counterpart in the database, tested in files of their own."""
COVERED_ELSEWHERE |= {"_exchange_generator_", "_unique_rows", "cauchy_", "geometric_", "log_normal_"}
COVERED_ELSEWHERE |= {"poisson"}
COVERED_ELSEWHERE |= {"polygamma", "special_softmax", "special_log_softmax"}
COVERED_ELSEWHERE |= {"_fft_c2c", "_fft_r2c", "_fft_c2r", "_fft_fitted", "fft_fftfreq", "fft_rfftfreq"}
COVERED_ELSEWHERE |= {
    "_cofactors", "_eigvals", "_eigvalsh", "_householder_product", "_linalg_lstsq", "_linalg_pinv", "_linalg_solve",
    "_lu_with_info", "_permutation", "_plain_lu", "_svdvals", "det", "frobenius_norm", "inverse", "linalg_matmul",
    "linalg_matrix_exp", "matrix_power", "nuclear_norm", "orgqr", "slogdet", "vander", "_linalg_cond",
    "_linalg_matrix_norm",
    "_linalg_lstsq_plain", "_linalg_matrix_rank", "_linalg_vecdot", "_matrix_power", "_ormqr",
}  # fmt: skip
COVERED_ELSEWHERE |= {
    "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window", "_over_envelope",
}  # fmt: skip
COVERED_ELSEWHERE |= {"_csr_indices", "_csr_matmul", "_csr_sampled_matmul", "_csr_solve", "_with_gradient_of"}
COVERED_ELSEWHERE |= {"_with_zero_derivative"}
COVERED_ELSEWHERE |= {"_addmm_activation", *[name for name in PUBLIC if name.startswith("_foreach_")]}

VIEWS: set[str] = {"as_strided", "transpose", "t", "squeeze", "unsqueeze", "swapaxes", "swapdims"}
"""Views: telegrad has no in-place forms of these, which would change a tensor's own shape."""

RANDOM: set[str] = {
    "nn.functional.dropout", "nn.functional.alpha_dropout", "bernoulli", "normal", "rand", "randn", "randint",
    "randn_like", "rand_like", "randint_like", "multinomial", "empty", "empty_like", "empty_strided", "new_empty",
    "new_empty_strided",
}  # fmt: skip

NUMBERS_TAKEN: set[str] = {"clamp_min", "clamp_max"}
"""The database says that PyTorch refuses a number as the second operand of these; it does not."""


ROUNDS_OFTEN: set[str] = {
    "nn.functional.binary_cross_entropy_with_logits", "nn.functional.group_norm", "nn.functional.batch_norm",
    "nn.functional.normalize", "addr", "addbmm", "cross", "nn.functional.bilinear", "nn.functional.pad",
    "nn.functional.scaled_dot_product_attention", "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d", "nn.functional.adaptive_avg_pool3d", "nn.functional.layer_norm",
}  # fmt: skip
"""PyTorch computes these step by step in half precision, telegrad in float32: they are held against float32 results."""


SLACK: dict[str, float] = {
    "nn.functional.scaled_dot_product_attention": 10.0, "special.i1": 20.0, "special.i1e": 20.0,
    "special.log_ndtr": 20.0, "linalg.eigh": 20.0, "linalg.householder_product": 1000.0,
}  # fmt: skip
"""How much more loosely some are compared: scores up to 200 are sums of terms that cancel, and exp multiplies that.

The terms of the second derivatives of some special functions and factorizations cancel.
"""


LESS_EXACT: set[str] = {
    "special.airy_ai", "special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1",
}  # fmt: skip
"""PyTorch's are right to eight digits or fewer: in double precision these are held against the database's reference."""


SLACK_ON_GPU: dict[str, float] = {
    "nn.functional.scaled_dot_product_attention": 2.0, "linalg.eigvalsh": 10.0, "linalg.svdvals": 10.0, "norm": 4.0,
    "linalg.eig": 20.0, "linalg.eigvals": 20.0,
}  # fmt: skip
"""And how much more so on a GPU, where fused kernels round weights to half precision, as PyTorch's do.

The second derivatives of spectra are sums of quotients by small gaps, and cuSOLVER's vectors round otherwise.
"""


SPECTRA = {"linalg.eigvalsh", "linalg.svdvals"}
"""Their derivatives are sums of quotients by small gaps: LAPACKs for different processors round them differently."""


SUMS = {
    "addbmm", "nn.functional.bilinear", "linspace", "nn.functional.conv1d", "nn.functional.conv2d",
    "nn.functional.conv3d", "matmul",
    "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d",
}  # fmt: skip
"""Results whose small elements inherit the rounding of large ones: cancelling products, and a range across zero."""


LAPACK: set[str] = {
    "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "inverse", "lu", "lu_solve", "lu_unpack", "matrix_exp",
    "ormqr", "pinverse", "qr", "svd", "triangular_solve",
}  # fmt: skip
"""Linear algebra at the top level."""


def composed(info: Any, operation: Callable[..., Any]) -> Callable[..., Any]:
    """What the database makes of an operation for some entries, made of telegrad's."""
    if info.name == "linalg.pinv" and info.variant_test_name == "singular":
        return lambda a, b, **kwargs: operation(a.matmul(b.transpose(-2, -1)), **kwargs)
    if info.name == "linalg.lstsq" and info.variant_test_name == "grad_oriented":
        return lambda *args, **kwargs: operation(*args, **kwargs)[:2]
    return operation


_HERMITIAN = ("cholesky", "linalg.cholesky", "linalg.cholesky_ex")
"""Of whose gradients only the Hermitian part means anything."""


def comparable(info: Any, operation: Callable[..., Any], device: str = "cpu") -> Callable[..., Any]:
    """An operation without what is left open: phases of vectors, null spaces.

    cuBLAS may choose other pivots than LAPACK where numbers are complex.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        if info.name == "istft" and kwargs.get("window") is not None:
            kwargs["window"] = kwargs["window"].detach()  # PyTorch loses the gradients of some; see test_stft
        if info.name in _HERMITIAN:
            args = ((args[0] + args[0].transpose(-2, -1).conj()) * 0.5, *args[1:])
        results = _of_any_phase(info.name, operation(*args, **kwargs))
        if device != "cpu" and info.name in _PIVOTED and args[0].dtype.is_complex and kwargs.get("pivot", True):
            return _of_any_pivots(info.name, results)
        return results

    return run


_PIVOTED = ("linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex")


def _of_any_pivots(name: str, results: Any) -> Any:
    """What is the same whatever rows are exchanged: P L U, or the size of the determinant of square matrices."""
    if name == "linalg.lu":
        return results[0].matmul(results[1]).matmul(results[2])
    factor, others = results[0], results[2:]
    if factor.shape[-1] != factor.shape[-2]:
        return results
    return factor.diagonal(0, -2, -1).abs().prod(-1), *others


def _of_any_phase(name: str, results: Any) -> Any:
    if name in ("linalg.eigh", "linalg.eig"):
        return results[0], results[1].abs()
    if name in ("linalg.svd", "svd"):
        left, values, right = results
        count = values.shape[-1]
        return left.narrow(-1, 0, count).abs(), values, right.narrow(-2 if "." in name else -1, 0, count).abs()
    return results


def is_kink(name: str, args: Any) -> bool:
    """Whether PyTorch's second derivative is NaN because nothing was summed, or nothing but zeros before 2.13."""
    is_old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
    return name == "linalg.norm" and not (args[0].any() if is_old else args[0].numel())


def has_own_strides(name: str) -> bool:
    """Whether PyTorch's strides tell of the library that computes, and telegrad's results are row-major instead."""
    return name.startswith(("fft.", "linalg.")) or name in LAPACK or name in ("stft", "istft")


def is_for_hosts(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether PyTorch takes a sample on the CPU alone: of the methods of least squares CUDA has only ``gels``."""
    return name == "linalg.lstsq" and kwargs.get("driver") != "gels"


def is_random(name: str) -> bool:
    """Whether values cannot be compared; shapes, dtypes and strides still are."""
    return name in RANDOM


def is_out_of_scope(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Samples of features that telegrad does not have: sparse, quantized, named, complex32, unsigned beyond 8 bits."""
    if name in _PLACES and any(isinstance(a, torch.Tensor) for a in args[1:]):
        return True
    if name == "matrix_exp" and args[0].dtype in (torch.float16, torch.bfloat16):
        return True  # PyTorch's results are not numbers on the CPU
    if name in ("complex", "view_as_complex") and getattr(args[0], "dtype", None) is torch.float16:
        return True  # the result would be complex32
    if name == "nn.functional.hardsigmoid" and args[0].dtype is torch.float64:
        return True  # PyTorch's gradient multiplies by a sixth in single precision; see test_pointwise
    if name == "normal" and len(args) == 3 and isinstance(args[0], torch.Tensor):
        return True  # the method normal_ under the function's name
    if name == "nn.functional.scaled_dot_product_attention" and kwargs.get("dropout_p"):
        return True  # random; see test_nn
    if name == "nonzero" and kwargs.get("as_tuple"):
        return True  # the client takes the columns apart
    if name in ("fmod", "remainder") and _quotient_overflows(*args[:2]):
        return True  # PyTorch's vectorised fmod gives NaN for these; see test_pointwise
    if _chooses_among_equals(name, args, kwargs) or _normalizes_single_elements(name, args, kwargs):
        return True
    return any(_foreign(a) for a in [*args, *kwargs.values()])


def _quotient_overflows(dividend: Any, divisor: Any) -> bool:
    if not isinstance(divisor, torch.Tensor) or not divisor.is_floating_point():
        return False
    quotients = torch.as_tensor(dividend).double() / divisor.double()
    return bool(((divisor != 0) & (quotients.abs() > torch.finfo(torch.float32).max)).any())


def _normalizes_single_elements(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """The exact gradient is zero, and what PyTorch finds is its own rounding error."""
    if name == "nn.functional.layer_norm":
        return bool(args[1] == (1,))
    return name == "nn.functional.normalize" and 1 in args[0].shape


ORDERING = {"sort", "argsort", "msort", "topk", "kthvalue", "median", "mode"}


def _chooses_among_equals(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """PyTorch leaves open which of several equal elements is found, unless the sort is stable; see test_sorting."""
    if name not in ORDERING or kwargs.get("stable") or not isinstance(args[0], torch.Tensor):
        return False
    return args[0].unique().numel() < args[0].numel()


_PLACES = {"narrow", "tensor_split"}
"""Positions given as tensors would be read from the device behind the user's back; ``int(t)`` says so."""


def _foreign(thing: Any) -> bool:
    if isinstance(thing, torch.Tensor):
        return thing.layout is not torch.strided or thing.dtype in _FOREIGN_DTYPES or thing.is_quantized
    if isinstance(thing, (list, tuple)):
        return any(map(_foreign, thing))
    if isinstance(thing, torch.layout):
        return thing is not torch.strided
    return thing in _FOREIGN_DTYPES if isinstance(thing, torch.dtype) else False


_FOREIGN_DTYPES = {torch.complex32, torch.uint16, torch.uint32, torch.uint64}
