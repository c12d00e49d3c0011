"""Operators of layers as PyTorch's dispatcher has them: normalization, recurrence, losses, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from .composites import COMPOSITES
from .derivatives import REDUCTIONS, F, gradients_of, tg

Tensors = tuple[Any, ...]


def _norm_in_training(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Any, running_var: Any, *rest: Any
) -> Any:
    """Normalize batches; the statistics are left out where the fourth argument tells whether this is training."""
    if isinstance(running_mean, bool):
        return tg.native_batch_norm(input, weight, bias, None, None, running_mean, running_var, *rest)
    return tg.native_batch_norm(input, weight, bias, running_mean, running_var, *rest)


def _norm_in_inference(
    input: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> Any:
    return tg.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def _functional_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor, *rest: Any
) -> Tensors:
    mean, var = running_mean.clone(), running_var.clone()
    return *tg.native_batch_norm(input, weight, bias, mean, var, *rest), mean, var


def _norm_with_update(
    input: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> Tensors:
    results = tg.native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return *results, input.new_empty((0,), dtype=tg.uint8)


def _norm_without_update(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Tensors:
    results = tg.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    return *results, input.new_empty((0,), dtype=tg.uint8)


def _masked(gradients: Sequence[Any], mask: Sequence[bool]) -> Tensors:
    return tuple([given if is_wanted else None for given, is_wanted in zip(gradients, mask, strict=True)])


def _batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Any, running_mean: Any, running_var: Any, save_mean: Any,
    save_invstd: Any, train: bool, eps: float, output_mask: Sequence[bool],
) -> Tensors:  # fmt: skip
    def run(x: Tensor, w: Any, b: Any) -> Any:
        return F.batch_norm(x, None if train else running_mean, None if train else running_var, w, b, train, 0.0, eps)

    scale = input.new_ones(input.shape[1]) if weight is None else weight
    return _masked(gradients_of(run, [input, scale, scale.new_zeros(scale.shape)], grad_out), output_mask)


def _group_norm_backward(
    grad_out: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Any, N: int, C: int, HxW: int, group: int,
    output_mask: Sequence[bool],
) -> Tensors:  # fmt: skip
    grouped = input.reshape(N, group, -1)
    eps = (rstd.reshape(N, group) ** -2 - grouped.var(-1, correction=0)).detach()

    def run(x: Tensor, w: Any, b: Any) -> Any:
        rows = x.reshape(N, group, -1)
        centred = rows - rows.mean(-1, keepdim=True)
        scaled = centred * ((centred**2).mean(-1) + eps).unsqueeze(-1) ** -0.5
        shape = (1, C, *[1] * (input.ndim - 2))
        return scaled.reshape(input.shape) * w.reshape(shape) + b.reshape(shape)

    scale = input.new_ones(C) if weight is None else weight
    return _masked(gradients_of(run, [input, scale, scale.new_zeros(scale.shape)], grad_out), output_mask)


def _convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> Tensors:  # fmt: skip
    def run(x: Tensor, w: Tensor) -> Any:
        given = (stride, padding, dilation, transposed, output_padding, groups)
        return COMPOSITES["_convolution"](x, w, None, *given)

    of_bias = grad_output.sum([0, *range(2, grad_output.ndim)]) if output_mask[2] else None
    return *_masked(gradients_of(run, [input, weight], grad_output), output_mask[:2]), of_bias


def _linear_backward(self: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Sequence[bool]) -> Tensors:
    of_bias = grad_output.sum(list(range(grad_output.ndim - 1))) if output_mask[2] else None
    return *_masked(gradients_of(F.linear, [self, weight], grad_output), output_mask[:2]), of_bias


def _recurrent(mode: str) -> Callable[..., Any]:
    """Return a stack of recurrent layers with the arguments of ``torch._VF``, of padded or of packed sequences."""

    def run(input: Tensor, second: Any, third: Any, *rest: Any) -> Any:
        is_packed = not isinstance(rest[0], bool)
        states, weights = (third, rest[0]) if is_packed else (second, third)
        has_biases, layers, dropout, train, bidirectional, *last = rest[1:] if is_packed else rest
        batch_first = bool(last and last[0])
        rows = input.transpose(0, 1) if batch_first else input
        sizes = tuple(second.tolist()) if is_packed else (rows.shape[1],) * rows.shape[0]
        hx, cx = states if mode == "LSTM" else (states, None)
        flat = rows if is_packed else rows.reshape(-1, rows.shape[-1])
        output, h, c = function("_rnn")(
            flat, hx, cx, [*weights], mode, layers, bidirectional, has_biases, dropout if train else 0.0, sizes
        )
        if not is_packed:
            output = output.reshape(*rows.shape[:2], -1)
            output = output.transpose(0, 1) if batch_first else output
        return (output, h, c) if mode == "LSTM" else (output, h)

    return run


def _packed(input: Tensor, lengths: Tensor, batch_first: bool) -> Tensors:
    packed = import_module("telegrad.nn.utils.rnn").pack_padded_sequence(input, lengths, batch_first)
    return packed.data, packed.batch_sizes


def _padded(data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int) -> Tensors:
    rnn = import_module("telegrad.nn.utils.rnn")
    total = None if total_length <= 0 else total_length
    result: Tensors = rnn.pad_packed_sequence(rnn.PackedSequence(data, batch_sizes), batch_first, padding_value, total)
    return result


def _pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    return import_module("telegrad.nn.utils.rnn").pad_sequence(sequences, batch_first, padding_value, padding_side)


def _nll_forward(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> Tensors:
    loss = F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])
    if not reduction:
        return loss, self.new_zeros(())
    counted = (target != ignore_index).to(self.dtype)
    if weight is not None:
        counted = counted * weight[target.where(target != ignore_index, target.new_zeros(()))]
    return loss, counted.sum()


def _nll_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int, total: Tensor
) -> Any:
    named = {"ignore_index": ignore_index, "reduction": REDUCTIONS[reduction]}
    return gradients_of(lambda x: F.nll_loss(x, target, weight, **named), [self], grad_output)[0]


def _bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> Tensors:  # fmt: skip
    """Sum up rows; the second to fourth results tell for each index its bag, the bags' sizes, and places of maxima."""
    kind = ("sum", "mean", "max")[mode]
    skipped = None if padding_idx < 0 else padding_idx
    result = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, kind, sparse, per_sample_weights,
        include_last_offset, skipped,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    bags = (tg.arange(indices.shape[0], device=indices.device).unsqueeze(1) >= starts).sum(1) - 1
    kept = tg.ones_like(indices) if skipped is None else (indices != skipped).to(indices.dtype)
    sizes = tg.zeros_like(starts).index_add(0, bags, kept)
    return result, bags, sizes, tg.zeros_like(sizes)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensors:
    dims = [place for place in range(v.ndim) if place != dim]
    norms = v.norm(2, dim=dims, keepdim=True)
    return v * (g / norms), norms


def _rms_norm(input: Tensor, normalized_shape: Any, weight: Any, eps: float | None) -> Tensors:
    dims = list(range(input.ndim - len(normalized_shape), input.ndim))
    least = tg.finfo(input.dtype).eps if eps is None else eps
    rstd = (input.pow(2).mean(dims, keepdim=True) + least).rsqrt()
    return F.rms_norm(input, normalized_shape, weight, eps), rstd


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Tensors:  # fmt: skip
    """Attention, and the logarithms of the sums that its weights are divided by."""
    output, scores = _scores(query, key, value, attn_mask, dropout_p, is_causal, scale)
    wide = scores.float() if scores.itemsize == 2 else scores
    return output, wide.logsumexp(-1)


def _attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    dropout_mask: Any = None, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensors:  # fmt: skip
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    output, scores = _scores(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return output, scores.softmax(-1)


def _scores(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, is_causal: bool, scale: float | None
) -> tuple[Any, Any]:
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        mask = tg.ones(scores.shape[-2:], dtype=tg.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is tg.bool else scores + mask
    return F.dropout(scores.softmax(-1), dropout) @ value, scores


def _masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Any:
    if mask_type == 0:
        mask = mask.reshape(1, 1, *mask.shape)
    elif mask_type == 1:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[-1])
    return self.masked_fill(mask.expand(self.shape), float("-inf")).softmax(-1 if dim is None else dim)


def _spread(dims: int) -> Callable[..., Any]:
    """Return the derivative of pooling by maxima, whose places are numbers within each picture."""

    def backward(grad_output: Tensor, self: Tensor, *rest: Any) -> Any:
        indices = rest[-1]
        flat = self.new_zeros(self.shape).flatten(-dims)
        return flat.scatter_add(-1, indices.flatten(-dims), grad_output.flatten(-dims)).reshape(self.shape)

    return backward


def _with_kernel_size(dims: int, transposed: bool = False) -> Callable[..., Any]:
    """Return a convolution that is told the size of its kernel."""

    def run(
        self: Tensor, weight: Tensor, kernel_size: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        *rest: Any,
    ) -> Any:  # fmt: skip
        sizes = [value if isinstance(value, int) else tuple(value) for value in (stride, padding, *rest)]
        if transposed:
            placed = [*sizes[:3], 1, *sizes[3:]]
            return getattr(F, f"conv_transpose{dims}d")(self, weight, bias, *placed)
        groups = 1 if weight.shape[1] == self.shape[1] else self.shape[1]
        return getattr(F, f"conv{dims}d")(self, weight, bias, *sizes, *[1] * (3 - len(sizes)), groups)

    return run


def _unflattened(flat: Tensor, tensors: Sequence[Tensor]) -> list[Any]:
    ends = [0, *accumulate([tensor.numel() for tensor in tensors])]
    return [flat[begin : begin + tensor.numel()].view_as(tensor) for begin, tensor in zip(ends, tensors, strict=False)]


LAYERS: Final[dict[str, Callable[..., Any]]] = {
    "_native_batch_norm_legit": _norm_in_training,
    "_native_batch_norm_legit_functional": _functional_norm,
    "_native_batch_norm_legit_no_training": _norm_in_inference,
    "_batch_norm_with_update": _norm_with_update,
    "_batch_norm_no_update": _norm_without_update,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_group_norm_backward": _group_norm_backward,
    "_fused_rms_norm": _rms_norm,
    "convolution_backward": _convolution_backward,
    "linear_backward": _linear_backward,
    "matmul_backward": lambda gradient, self, other, mask: _masked(
        gradients_of(tg.matmul, [self, other], gradient), mask
    ),
    "_convolution_mode": lambda input, weight, bias, stride, padding, dilation, groups: getattr(
        F, f"conv{weight.ndim - 2}d"
    )(input, weight, bias, tuple(stride), padding, tuple(dilation), groups),
    **{name: _with_kernel_size(2) for name in ("slow_conv_dilated2d", "_slow_conv2d_forward", "_conv_depthwise2d")},
    **{name: _with_kernel_size(3) for name in ("slow_conv_dilated3d", "slow_conv3d_forward", "conv_depthwise3d")},
    **{f"slow_conv_transpose{dims}d": _with_kernel_size(dims, True) for dims in (2, 3)},
    "lstm": _recurrent("LSTM"),
    "gru": _recurrent("GRU"),
    "rnn_tanh": _recurrent("RNN_TANH"),
    "rnn_relu": _recurrent("RNN_RELU"),
    "_pack_padded_sequence": _packed,
    "_pad_packed_sequence": _padded,
    "pad_sequence": _pad_sequence,
    "nll_loss_forward": _nll_forward,
    "nll_loss2d_forward": _nll_forward,
    "nll_loss2d_backward": _nll_backward,
    "embedding_bag": _bag,
    "_embedding_bag": _bag,
    "_embedding_bag_forward_only": _bag,
    "_weight_norm_interface": _weight_norm,
    "_weight_norm": lambda v, g, dim=0: _weight_norm(v, g, dim)[0],
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_attention_math": _attention_with_weights,
    "_masked_softmax": _masked_softmax,
    "adaptive_max_pool2d_backward": _spread(2),
    "adaptive_max_pool3d_backward": _spread(3),
    "max_pool3d_with_indices_backward": _spread(3),
    "flatten_dense_tensors": lambda tensors: tg.cat([tensor.reshape(-1) for tensor in tensors]),
    "unflatten_dense_tensors": _unflattened,
}
