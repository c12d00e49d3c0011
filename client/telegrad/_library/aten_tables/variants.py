"""Operators of PyTorch's library that are other functions under another name, in other forms, or in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from telegrad._tensor.tensor import Tensor

from .derivatives import REDUCTIONS, F, gradients_of, tg
from .layers import LAYERS

_PADDINGS: Final = ("reflect", "replicate", "circular", "constant")
"""Modes in the order of PyTorch's numbers for them."""


def _smoothed(mode: str) -> Callable[..., Any]:
    """Return resizing with ``antialias``: a size or factors, corners, and scales, which are not needed for a size."""

    def run(self: Tensor, output_size: Any, align_corners: bool, *scales: Any) -> Any:
        named = {"scale_factor": tuple(scales[0])} if output_size is None else {"size": tuple(output_size)}
        return F.interpolate(self, mode=mode, align_corners=bool(align_corners), antialias=True, **named)

    return run


def _smoothed_backward(mode: str) -> Callable[..., Any]:
    resize = _smoothed(mode)

    def run(gradient: Tensor, output_size: Any, input_size: Any, align_corners: bool, *scales: Any) -> Any:
        zeros = gradient.new_zeros(tuple(input_size))
        return gradients_of(lambda x: resize(x, output_size, align_corners), [zeros], gradient)[0]

    return run


def _nearest_exact_backward(gradient: Tensor, output_size: Any, input_size: Any, *scales: Any) -> Any:
    zeros = gradient.new_zeros(tuple(input_size))
    return gradients_of(lambda x: F.interpolate(x, tuple(output_size), mode="nearest-exact"), [zeros], gradient)[0]


def _with_places(name: str) -> Callable[..., Any]:
    """Return pooling at places that are given, which also tells where each maximum was."""

    def run(self: Tensor, kernel_size: Any, output_size: Any, random_samples: Tensor) -> Any:
        sizes = tuple(kernel_size), tuple(output_size)
        return getattr(F, name)(self, *sizes, return_indices=True, _random_samples=random_samples)

    return run


def _put_back(dims: int) -> Callable[..., Any]:
    """Return the derivative of pooling that has noted where each maximum was."""

    def run(gradient: Tensor, self: Tensor, kernel_size: Any, output_size: Any, indices: Tensor) -> Any:
        flat = gradient.new_zeros(self.shape).flatten(-dims)
        return flat.scatter_add(-1, indices.flatten(-dims), gradient.flatten(-dims)).reshape(self.shape)

    return run


def _multilabel_targets(self: Tensor, target: Tensor) -> Any:
    """Return which classes are targets: those before the first -1."""
    rows = target.reshape(-1, target.shape[-1]) if target.ndim else target.reshape(1, 1)
    known = (rows < 0).cumsum(1) == 0
    hits = rows.new_zeros((rows.shape[0], rows.shape[1])).scatter_add(1, rows.clamp(min=0), known.to(rows.dtype))
    return (hits > 0).to(self.dtype).reshape(target.shape)


def _multilabel(self: Tensor, target: Tensor, reduction: int) -> Any:
    loss = F.multilabel_margin_loss(self, target, reduction=REDUCTIONS[reduction])
    return loss, _multilabel_targets(self, target)


def _multilabel_backward(gradient: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Any:
    return gradients_of(
        lambda x: F.multilabel_margin_loss(x, target, reduction=REDUCTIONS[reduction]), [self], gradient
    )[0]


def _attention_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    def run(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal, scale=scale)

    return tuple(gradients_of(run, [query, key, value], grad_out))


def _rescaled(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> Any:
    """Return queries, keys and values by head, with their biases; queries are scaled."""
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    heads = (qkv + qkv_bias).reshape(batch, length, 3, num_heads, width // num_heads).permute(2, 0, 3, 1, 4)
    query, key, value = heads.contiguous().unbind(0)
    return query * (width // num_heads) ** -0.5, key, value


def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Any:
    _, gate = x.chunk(2, dim)
    first, second = dx.chunk(2, dim)
    return first * gate.sigmoid() + glu * (1 - gate.sigmoid()) * second


def _weight_norm_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int) -> Any:
    return tuple(gradients_of(lambda v, g: LAYERS["_weight_norm"](v, g, dim), [saved_v, saved_g], grad_w))


def _unpacked(grad: Tensor, input_size: Sequence[int], batch_sizes: Tensor, batch_first: bool) -> Any:
    """Return the gradient of a padded batch, given that of its packed elements."""
    result = grad.new_zeros(tuple(input_size))
    steps, begin = (result.transpose(0, 1) if batch_first else result), 0
    for number, size in enumerate(batch_sizes.tolist()):
        steps[number, :size].copy_(grad[begin : begin + size])
        begin += size
    return result


def _row_pointers(self: Tensor, size: int, *, out_int32: bool = False) -> Any:
    counts = tg.bincount(self, minlength=size).cumsum(0)
    pointers = tg.cat([counts.new_zeros(1), counts])
    return pointers.to(tg.int32 if out_int32 else tg.int64)


def _rows_and_columns(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    counts = crow_indices.diff()
    rows = tg.arange(counts.shape[0], device=counts.device).repeat_interleave(counts)
    pair = (col_indices, rows.to(col_indices.dtype)) if transpose else (rows.to(col_indices.dtype), col_indices)
    return tg.stack(pair).to(tg.int32 if out_int32 else tg.int64)


def _histogram_of(bins: Any, named: dict[str, Any]) -> Callable[[Tensor], Any]:
    if named.get("range") is None:
        named.pop("range", None)
    return lambda self: tg.histogramdd(self, bins=bins, **named)


def _is_dense(self: Tensor) -> bool:
    """Whether the elements lie side by side, in any order of the dimensions, each once."""
    expected = 1
    for stride, size in sorted(
        [(stride, size) for stride, size in zip(self.stride(), self.shape, strict=True) if size != 1]
    ):
        if stride != expected:
            return False
        expected *= size
    return True


def _batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Tensor, running_mean: Any, running_var: Any, save_mean: Any, save_var: Any,
    update: bool, eps: float, output_mask: Any, reserve: Tensor,
) -> Any:  # fmt: skip
    given = (running_mean, running_var, save_mean, save_var, update, eps, output_mask)
    return LAYERS["native_batch_norm_backward"](grad_out, input, weight, *given)


def _grouped_mm(self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Return products of groups: of rows of the first, columns of the second, or what is between, by ``offs``."""
    ends = [] if offs is None else offs.tolist()
    begins = [0, *ends[:-1]]
    if self.ndim == 3 and mat2.ndim == 3:
        result = self @ mat2
    elif self.ndim == 2 and mat2.ndim == 3:
        result = tg.cat([self[begin:end] @ mat2[n] for n, (begin, end) in enumerate(zip(begins, ends, strict=True))])
    elif self.ndim == 3:
        parts = [self[n] @ mat2[:, begin:end] for n, (begin, end) in enumerate(zip(begins, ends, strict=True))]
        result = tg.cat(parts, 1)
    else:
        result = tg.stack([self[:, begin:end] @ mat2[begin:end] for begin, end in zip(begins, ends, strict=True)])
    return result if out_dtype is None else result.to(out_dtype)


def _sparse(name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(import_module("telegrad.sparse"), name)(*args, **kwargs)


def _unchecked(name: str) -> Callable[..., Any]:
    """Return a constructor of sparse tensors that looks at no index."""

    def make(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return getattr(tg, name)(*args, check_invariants=False, **kwargs)

    return make


VARIANTS: Final[dict[str, Callable[..., Any]]] = {
    **{f"_upsample_{mode}2d_aa": _smoothed(mode) for mode in ("bilinear", "bicubic")},
    **{f"_upsample_{mode}2d_aa_backward": _smoothed_backward(mode) for mode in ("bilinear", "bicubic")},
    **{f"_upsample_nearest_exact{dims}d_backward": _nearest_exact_backward for dims in (1, 2, 3)},
    **{f"fractional_max_pool{dims}d": _with_places(f"fractional_max_pool{dims}d") for dims in (2, 3)},
    **{f"fractional_max_pool{dims}d_backward": _put_back(dims) for dims in (2, 3)},
    "multilabel_margin_loss_forward": _multilabel,
    "multilabel_margin_loss_backward": _multilabel_backward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_transform_bias_rescale_qkv": _rescaled,
    "glu_jvp": _glu_jvp,
    "_weight_norm_differentiable_backward": _weight_norm_backward,
    "_weight_norm_interface_backward": _weight_norm_backward,
    "_pack_padded_sequence_backward": _unpacked,
    "_convert_indices_from_coo_to_csr": _row_pointers,
    "_convert_indices_from_csr_to_coo": _rows_and_columns,
    "_histogramdd_bin_edges": lambda self, bins, **named: _histogram_of(bins, named)(self)[1],
    "_histogramdd_from_bin_cts": lambda self, bins, **named: _histogram_of(bins, named)(self)[0],
    "_histogramdd_from_bin_tensors": lambda self, bins, **named: _histogram_of(bins, named)(self)[0],
    "_pad_enum": lambda self, pad, mode, value=None: F.pad(self, tuple(pad), _PADDINGS[mode], value),
    "_masked_softmax_backward": lambda gradient, output, mask, dim=None: (
        output * (gradient - (gradient * output).sum(-1 if dim is None else dim, keepdim=True))).masked_fill(mask, 0),
    "_index_put_impl": lambda self, indices, values, accumulate=False, unsafe=False: self.clone().index_put_(
        list(indices), values, accumulate),
    "_reshape_alias_copy": lambda self, size, stride: self.as_strided(size, stride).clone(),
    "is_non_overlapping_and_dense": _is_dense,
    "mkldnn_convolution": lambda self, weight, bias, padding, stride, dilation, groups: tg.convolution(
        self, weight, bias, tuple(stride), tuple(padding), tuple(dilation), False, (0,) * len(padding), groups),
    "conv_tbc_backward": lambda gradient, input, weight, bias, pad: tuple(gradients_of(
        lambda x, w, b: tg.conv_tbc(x, w, b, pad), [input, weight, bias], gradient)),
    "batch_norm_backward": _batch_norm_backward,
    "linalg__powsum": lambda self, ord=2, dim=None, keepdim=False, dtype=None: (
        (self if dtype is None else self.to(dtype)).abs() ** ord).sum(dim, keepdim),
    "_grouped_mm": _grouped_mm,
    "_coalesce": lambda self: self.coalesce(),
    "_sparse_sparse_matmul": lambda self, other: tg.mm(self, other),
    "_sparse_softmax": lambda self, dim, *rest, **named: _sparse("softmax")(self, dim),
    "_sparse_log_softmax": lambda self, dim, *rest, **named: _sparse("log_softmax")(self, dim),
    "_spdiags": lambda diagonals, offsets, shape, layout=None: _sparse("spdiags")(diagonals, offsets, shape, layout),
    "_sparse_coo_tensor_unsafe": lambda indices, values, size, *, is_coalesced=None, **named: _unchecked(
        "sparse_coo_tensor")(indices, values, size, is_coalesced=is_coalesced, **named),
    **{f"_sparse_{layout}_tensor_unsafe": _unchecked(f"sparse_{layout}_tensor")
       for layout in ("csr", "csc", "bsr", "bsc", "compressed")},
    **{f"_to_sparse_{layout}": (lambda self, *args, _name=f"to_sparse_{layout}", **named: getattr(self, _name)(
        *args, **named)) for layout in ("csr", "csc", "bsr", "bsc")},
}  # fmt: skip
"""Functions that serve ATen's operators, by the operators' names."""
