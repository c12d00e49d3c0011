"""Operators that PyTorch's own functions consist of, and that programs meet where they watch or replace operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.autograd import backward, forward_ad
from telegrad_protocol.errors import ArgumentError

from .derivatives import F, gradients_of, tg
from .layers import LAYERS
from .networks import NETWORKS


def _masked_indices(mask: Tensor, indices: Sequence[Any]) -> tuple[Any, ...]:
    """Return indices with 0 where they are not to be used."""
    return tuple([slice(None) if one is None else one.where(mask, one.new_zeros(())) for one in indices])


def _masked_index(self: Tensor, mask: Tensor, indices: Sequence[Any], fill: Any) -> Any:
    return self[_masked_indices(mask, indices)].masked_fill(~mask, fill)


def _masked_put(self: Tensor, mask: Tensor, indices: Sequence[Any], values: Tensor) -> Any:
    return self.clone().index_put_(_masked_indices(mask, indices), values.masked_fill(~mask, 0), accumulate=True)


def _noisy_rrelu(
    self: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> Any:  # fmt: skip
    if not training:
        return F.leaky_relu(self, (lower + upper) / 2)
    slopes = tg.empty_like(self).uniform_(lower, upper, generator=generator)
    noise.copy_(slopes.where(self <= 0, slopes.new_ones(())))
    return self * noise


def _rrelu_backward(
    grad_output: Tensor, self: Tensor, noise: Tensor, lower: float, upper: float, training: bool, is_result: bool
) -> Any:
    if training and upper - lower > 1e-6:
        return grad_output * noise
    return grad_output.where(self > 0, grad_output * ((lower + upper) / 2))


def _scattered(gradient: Tensor, shape: Sequence[int], dim: int, index: Tensor) -> Any:
    return gradient.new_zeros(tuple(shape)).scatter_add(dim, index, gradient)


def _selected(gradient: Tensor, dim: int, indices: Tensor, sizes: Sequence[int], keepdim: bool) -> Any:
    """Put gradients at the places that a maximum or its like was taken from."""
    if not keepdim and len(sizes):
        gradient, indices = gradient.unsqueeze(dim), indices.unsqueeze(dim)
    return gradient.new_zeros(tuple(sizes)).scatter(dim, indices, gradient)


def _embedding_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool, sparse: bool = False
) -> Any:
    zeros = grad.new_zeros((num_weights, grad.shape[-1]))
    ignored = None if padding_idx < 0 else padding_idx
    return gradients_of(
        lambda weight: F.embedding(indices, weight, ignored, scale_grad_by_freq=scale_grad_by_freq), [zeros], grad
    )[0]


def _unique_along(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    values, inverse, counts = tg.unique(self, return_inverse=True, return_counts=True, dim=dim)
    empty = inverse.new_empty((0,))
    return values, inverse if return_inverse else empty, counts if return_counts else empty


def _check(self: Any, message: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    if not self:
        raise AssertionError(message)


def _check_metadata(
    a: Tensor, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None, layout: Any = None
) -> None:
    wanted = {"size": size, "stride": stride, "dtype": dtype, "device": device, "layout": layout}
    given = {
        "size": list(a.shape), "stride": list(a.stride()), "dtype": a.dtype, "device": a.device, "layout": a.layout,
    }  # fmt: skip
    for name, value in wanted.items():
        if value is not None and (list(value) if name in ("size", "stride") else value) != given[name]:
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {value}, Got: {given[name]}")


def _binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Any:
    """Draw numbers of successes, one trial after the other at once for all."""
    trials = int(count.max()) if count.numel() else 0
    if (count < 0).any():
        raise ArgumentError("binomial: counts must not be negative")
    draws = tg.rand((trials, *count.shape), generator=generator, device=count.device, dtype=count.dtype) < prob
    numbers = tg.arange(trials, device=count.device).reshape(-1, *[1] * count.ndim)
    return (draws & (numbers < count)).sum(0).to(count.dtype)


def _gamma(self: Tensor, generator: Any = None) -> Any:
    return import_module("telegrad.distributions.gammas").standard_gamma(self)


def _dirichlet(self: Tensor, generator: Any = None) -> Any:
    drawn = _gamma(self)
    return drawn / drawn.sum(-1, keepdim=True)


def _backward(
    self: Tensor, inputs: Sequence[Tensor], gradient: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:  # fmt: skip
    backward(self, gradient, retain_graph, create_graph, inputs=list(inputs) or None)


def _set_data(self: Tensor, new_data: Tensor) -> None:
    self.data = new_data


def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    for dims, place in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in sorted(dims):
            i1, i2, i3 = [x.unsqueeze(dim) if number == place else x for number, x in enumerate((i1, i2, i3))]
    product = i1 * i2 * i3
    return product.sum(list(sumdim)) if len(sumdim) else product


def _fused_dropout(self: Tensor, p: float, generator: Any = None) -> tuple[Any, Any]:
    kept = tg.rand(self.shape, generator=generator, device=self.device) < p
    return self * kept / p, kept.to(tg.uint8)


def _renormed(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    return tg.embedding_renorm_(self.clone(), indices, max_norm, norm_type)


def _lu_results(name: str, *places: Any) -> Callable[..., Any]:
    """Return a function of ``linalg`` that also returns the factors of its first operand."""

    def run(A: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        result = getattr(tg.linalg, name)(A, *args, **kwargs)
        factors, pivots = tg.linalg.lu_factor(A)
        results = result if isinstance(result, tuple) else (result,)
        return *results[:2], factors, pivots

    return run


def _solved(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    result, info = tg.linalg.solve_ex(A, B, left=left, check_errors=check_errors)
    return result, *tg.linalg.lu_factor(A), info


INTERNALS: Final[dict[str, Callable[..., Any]]] = {
    **LAYERS,
    **NETWORKS,
    "sym_size": lambda self, dim=None: self.shape if dim is None else self.shape[dim],
    "sym_stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
    "sym_numel": lambda self: self.numel(),
    "sym_storage_offset": lambda self: self.storage_offset(),
    "sym_is_contiguous": lambda self, memory_format=None: self.is_contiguous(),
    "_version": lambda self: self._version,
    "is_leaf": lambda self: self.is_leaf,
    "output_nr": lambda self: self.output_nr,
    "retains_grad": lambda self: self.retains_grad,
    "data": lambda self: self.data,
    "set_data": _set_data,
    "mH": lambda self: self.mH,
    "mT": lambda self: self.mT,
    "matrix_H": lambda self: self.H,
    "numpy_T": lambda self: self.T,
    "is_distributed": lambda self: False,
    "cudnn_is_acceptable": lambda self: False,
    "is_vulkan_available": lambda: False,
    "_nnpack_available": lambda: False,
    "_is_zerotensor": lambda self: False,
    "_has_same_storage_numel": lambda self, other: (
        self.untyped_storage().nbytes() // self.itemsize == other.untyped_storage().nbytes() // other.itemsize
    ),
    "_is_all_true": lambda self: self.all(),
    "_is_any_true": lambda self: self.any(),
    "_assert_async": _check,
    "_assert_scalar": _check,
    "_assert_tensor_metadata": _check_metadata,
    "_print": lambda s: print(s),
    "_reshape_alias": lambda self, size, stride: self.as_strided(tuple(size), tuple(stride)),
    "_reshape_copy": lambda self, size: self.reshape(tuple(size)).clone(),
    "_conj_copy": lambda self: self.conj().resolve_conj().clone(),
    "_neg_view": lambda self: -self,
    "_neg_view_copy": lambda self: -self,
    "_lazy_clone": lambda self: self.clone(),
    "_shape_as_tensor": lambda self: tg.tensor(list(self.shape), dtype=tg.int64),
    "_dim_arange": lambda like, dim: tg.arange(like.shape[dim], device=like.device),
    "_to_dense": lambda self, dtype=None, masked_grad=None: self.to_dense(dtype),
    "_to_sparse": lambda self, *args, **kwargs: self.to_sparse(*args, **kwargs),
    "_to_cpu": lambda tensors: [tensor.cpu() for tensor in tensors],
    "_efficientzerotensor": lambda size, **kwargs: tg.zeros(tuple(size), **kwargs),
    "resize": lambda self, size, *, memory_format=None: self.clone().resize_(tuple(size)),
    "resize_as": lambda self, the_template, *, memory_format=None: self.clone().resize_as_(the_template),
    "_euclidean_dist": lambda x1, x2: tg.cdist(x1, x2),
    "_cdist_backward": lambda grad, x1, x2, p, cdist: gradients_of(lambda x: tg.cdist(x, x2, p), [x1], grad)[0],
    "_pdist_backward": lambda grad, self, p, pdist: gradients_of(lambda x: tg.pdist(x, p), [self], grad)[0],
    "_chunk_cat": lambda tensors, dim, num_chunks: tg._chunk_cat(tensors, dim, num_chunks),
    "_logcumsumexp": lambda self, dim: tg.logcumsumexp(self, dim),
    "_masked_scale": lambda self, mask, scale: self * mask * scale,
    "_add_relu": lambda self, other, *, alpha=1: tg.add(self, other, alpha=alpha).relu(),
    "_add_relu_": lambda self, other, *, alpha=1: self.add_(other, alpha=alpha).relu_(),
    "gelu_": lambda self, *, approximate="none": self.copy_(F.gelu(self, approximate=approximate)),
    "feature_alpha_dropout_": lambda self, p, train: self.copy_(F.feature_alpha_dropout(self, p, train)),
    "_fused_dropout": _fused_dropout,
    "_trilinear": _trilinear,
    "_unsafe_masked_index": _masked_index,
    "_unsafe_masked_index_put_accumulate": _masked_put,
    "rrelu_with_noise": _noisy_rrelu,
    "rrelu_with_noise_backward": _rrelu_backward,
    "_standard_gamma": _gamma,
    "_sample_dirichlet": _dirichlet,
    "binomial": _binomial,
    "normal_functional": lambda self, mean=0.0, std=1.0, *, generator=None: tg.empty_like(self).normal_(
        mean, std, generator=generator
    ),
    "_foreach_clone": lambda self, *, memory_format=None: [tensor.clone() for tensor in self],
    "_foreach_copy": lambda self, src, non_blocking=False: [
        one.to(own.dtype).expand(own.shape).clone() for own, one in zip(self, src, strict=True)
    ],
    "_foreach_max": lambda self: [tensor.max() for tensor in self],
    "_foreach_zero": lambda self: [tg.zeros_like(tensor) for tensor in self],
    "_linalg_det": _lu_results("det"),
    "_linalg_slogdet": _lu_results("slogdet"),
    "_linalg_solve_ex": _solved,
    "_linalg_eigvals": lambda self: tg.linalg.eigvals(self),
    "cummaxmin_backward": lambda grad, input, indices, dim: _scattered(grad, input.shape, dim, indices),
    "cumprod_backward": lambda grad, input, dim, output: gradients_of(lambda x: x.cumprod(dim), [input], grad)[0],
    "matrix_exp_backward": lambda self, grad: gradients_of(tg.linalg.matrix_exp, [self], grad)[0],
    "infinitely_differentiable_gelu_backward": lambda grad, self: gradients_of(F.gelu, [self], grad)[0],
    "gather_backward": lambda grad, self, dim, index, sparse_grad=False: _scattered(grad, self.shape, dim, index),
    "index_select_backward": lambda grad, self_sizes, dim, index: grad.new_zeros(tuple(self_sizes)).index_add(
        dim, index, grad
    ),
    "masked_select_backward": lambda grad, input, mask: gradients_of(lambda x: x.masked_select(mask), [input], grad)[0],
    "trace_backward": lambda grad, sizes: tg.eye(*sizes, dtype=grad.dtype, device=grad.device) * grad,
    "to_dense_backward": lambda grad, input, masked_grad=None: grad,
    "value_selecting_reduction_backward": _selected,
    "embedding_backward": _embedding_backward,
    "embedding_renorm": _renormed,
    "affine_grid_generator_backward": lambda grad, size, align_corners: gradients_of(
        lambda theta: F.affine_grid(theta, tuple(size), align_corners),
        [grad.new_zeros((grad.shape[0], grad.shape[-1], grad.shape[-1] + 1))], grad,
    )[0],
    "unique_dim": _unique_along,
    "unique_dim_consecutive": lambda self, dim, return_inverse=False, return_counts=False: _consecutive(
        self, dim, return_inverse, return_counts
    ),
    "_backward": _backward,
    "_make_dual": lambda primal, tangent, level: forward_ad.make_dual(primal, tangent, level=level),
    "_unpack_dual": lambda dual, level: tuple(forward_ad.unpack_dual(dual, level=level)),
    "_sparse_mm": lambda sparse, dense, *reduce: tg.sparse.mm(sparse, dense, *reduce),
    "_sparse_sum": lambda self, dim=None, *, dtype=None: tg.sparse.sum(self, dim, dtype),
    "sparse_sampled_addmm": lambda self, mat1, mat2, *, beta=1, alpha=1: tg.sparse.sampled_addmm(
        self, mat1, mat2, beta=beta, alpha=alpha
    ),
}  # fmt: skip


def _consecutive(self: Tensor, dim: int, return_inverse: bool, return_counts: bool) -> Any:
    values, inverse, counts = tg.unique_consecutive(self, return_inverse=True, return_counts=True, dim=dim)
    empty = inverse.new_empty((0,))
    return values, inverse if return_inverse else empty, counts if return_counts else empty
