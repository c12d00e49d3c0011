"""Operators that PyTorch's functions consist of: the same calls give the same results under telegrad and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
a = t.ops.aten
def draw(*shape):
    count = 1
    for size in shape:
        count *= size
    part = values[cursor[0] : cursor[0] + count]
    cursor[0] += count
    return t.tensor(part, dtype=t.float64).reshape(shape)
def plain(result):
    if isinstance(result, t.Tensor):
        return result.contiguous()
    return tuple(map(plain, result)) if isinstance(result, (list, tuple)) else result
cursor = [0]
x, y, v = draw(3, 4), draw(3, 4), draw(4)
square = draw(3, 3) + 3 * t.eye(3)
batch, planes = draw(2, 4, 5), draw(2, 4, 6, 6)
mean, var, w, b = draw(4), draw(4).abs() + 1, draw(4), draw(4)
kernel, bias = draw(3, 4, 3, 3), draw(3)
volume = draw(1, 2, 4, 4, 4)
idx = t.tensor([2, 0, 1, 2])
table = draw(5, 4)
labels, logits = t.tensor([1, 3, 0]), draw(3, 4).log_softmax(1)
q, k, u = draw(1, 2, 3, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 4)
mask = t.tensor([True, False, True])
def layers(gates, width=3, features=4):
    return [draw(gates * width, features), draw(gates * width, width), draw(gates * width), draw(gates * width)]
def norm(run, *rest):
    running = mean.clone(), var.clone()
    return (*[part for part in run(planes, w, b, *running, *rest) if part.dtype != t.uint8], *running)
"""
CALLS = """
norm(a._native_batch_norm_legit, True, 0.1, 1e-5)
a._native_batch_norm_legit.no_stats(planes, w, b, True, 0.1, 1e-5)
a._native_batch_norm_legit_no_training(planes, w, b, mean, var, 0.1, 1e-5)[0]
a._native_batch_norm_legit_functional(planes, w, b, mean, var, True, 0.1, 1e-5)
norm(a._batch_norm_with_update, 0.1, 1e-5)
a._batch_norm_no_update(planes, w, b, mean, var, 0.1, 1e-5)[0]
a.native_batch_norm_backward(planes * 2, planes, w, mean, var, *a.native_batch_norm(planes, w, b, None, None, \
    True, 0.1, 1e-5)[1:], True, 1e-5, [True, True, True])
a.native_batch_norm_backward(planes * 2, planes, None, mean, var, None, None, False, 1e-5, [True, False, False])
a.native_group_norm_backward(planes.sin(), planes, *a.native_group_norm(planes, w, b, 2, 4, 36, 2, 1e-5)[1:], \
    w, 2, 4, 36, 2, [True, True, True])
a.convolution_backward(a.convolution(planes, kernel, bias, [2, 1], [1, 0], [1, 1], False, [0, 0], 1).cos(), \
    planes, kernel, [3], [2, 1], [1, 0], [1, 1], False, [0, 0], 1, [True, True, True])
a.convolution_backward.default(draw(2, 3, 8, 8), planes, kernel.transpose(0, 1).contiguous(), [3], [1, 1], [0, \
    0], [1, 1], True, [0, 0], 1, [True, True, False])
a._convolution_mode(planes, kernel, bias, [1, 1], "same", [1, 1], 1)
a.slow_conv_dilated2d(planes, kernel, [3, 3], bias, [1, 1], [1, 1], [2, 2])
a._slow_conv2d_forward(planes, kernel, [3, 3], bias, [1, 1], [0, 0])
a.slow_conv_transpose2d(planes, kernel.transpose(0, 1).contiguous(), [3, 3], bias, [2, 2], [1, 1], [1, 1], [1, \
    1])
a.slow_conv3d_forward(volume, draw(1, 2, 2, 2, 2), [2, 2, 2], None, [1, 1, 1], [0, 0, 0])
a.lstm(batch.transpose(1, 2), [draw(1, 2, 3), draw(1, 2, 3)], layers(4), True, 1, 0.0, False, False, True)
a.lstm.input(batch.transpose(1, 2), [draw(2, 5, 3), draw(2, 5, 3)], layers(4) + layers(4), True, 1, 0.0, True, \
    True, False)
a.gru(batch.permute(2, 0, 1), draw(1, 2, 3), layers(3), True, 1, 0.0, False, False, False)
a.rnn_tanh(batch.permute(2, 0, 1), draw(1, 2, 3), layers(1)[:2], False, 1, 0.0, False, False, False)
a.rnn_relu.data(draw(5, 4), t.tensor([2, 2, 1]), draw(1, 2, 3), layers(1), True, 1, 0.0, False, False)
a._pack_padded_sequence(batch, t.tensor([4, 2]), True)
a._pad_packed_sequence(*a._pack_padded_sequence(batch, t.tensor([4, 2]), True), True, 9.0, 4)
a.pad_sequence([x, x[:2], x[:1]], True, 7.0)
a.nll_loss_forward(logits, labels, None, 1, -100)
a.nll_loss_forward(logits, labels, v.abs(), 2, 3)
a.nll_loss_forward(logits, labels, v.abs(), 0, 3)[0]
a.nll_loss2d_forward(planes.log_softmax(1), t.arange(72).reshape(2, 6, 6) % 4, None, 1, 2)
a.nll_loss2d_backward(t.tensor(2.0, dtype=t.float64), planes, t.arange(72).reshape(2, 6, 6) % 4, None, 1, 2, \
    t.tensor(54.0, dtype=t.float64))
a._embedding_bag(table, idx, t.tensor([0, 2]), False, 1)[0]
a._embedding_bag_forward_only(table, idx, t.tensor([0, 1]), False, 2)[0]
a._weight_norm_interface(x, draw(3, 1), 0)
a._weight_norm(x, draw(1, 4), 1)
a._fused_rms_norm(x, [4], v, 1e-6)
a._scaled_dot_product_flash_attention_for_cpu(q, k, u, 0.0, True)
a._scaled_dot_product_flash_attention_for_cpu(q, k, u, attn_mask=draw(3, 3), scale=0.3)
a._scaled_dot_product_attention_math(q, k, u, None, 0.0, True)
a._masked_softmax(x, x > 0.5, 1, 2)
a._masked_softmax(x, x > -9, 1, 2)
a.adaptive_max_pool2d_backward(draw(2, 4, 2, 2), planes, a.adaptive_max_pool2d(planes, [2, 2])[1])
a.adaptive_max_pool3d_backward(draw(1, 2, 2, 2, 2), volume, a.adaptive_max_pool3d(volume, [2, 2, 2])[1])
a.max_pool3d_with_indices_backward(draw(1, 2, 2, 2, 2), volume, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, \
    a.max_pool3d_with_indices(volume, [2] * 3)[1])
a.flatten_dense_tensors([x, v])
a.unflatten_dense_tensors(t.arange(16.0), [x, v])
(list(a.sym_size(x)), a.sym_size.int(x, 1), list(a.sym_stride(x)), a.sym_stride.int(x.t(), 0), a.sym_numel(x), \
    a.sym_storage_offset(x[1:]))
(a.is_leaf(x), a.output_nr(x), a.retains_grad(x), a._version(x), a.is_distributed(x), a._is_zerotensor(x))
(a.mT(x), a.numpy_T(x), a.matrix_H(x), a.mH(x))
(a._is_all_true(x > -9), a._is_any_true(x > 9))
(a._assert_async(t.tensor(1)), a._assert_tensor_metadata(x, [3, 4], None, t.float64))
a._assert_tensor_metadata(x, [3, 5])
a._reshape_alias(x, [4, 3], [1, 4])
(a._reshape_copy(x, [2, 6]), a._conj_copy(t.complex(x, y)), a._lazy_clone(x), a._neg_view_copy(x))
(a._shape_as_tensor(x), a._dim_arange(x, 1))
a._euclidean_dist(x, y)
a._cdist_backward(draw(3, 3), x, y, 2.0, t.cdist(x, y))
a._pdist_backward(draw(3), x, 2.0, t.pdist(x))
a._logcumsumexp(x, 1)
(a._add_relu(x, y), a._add_relu_(x.clone(), y, alpha=2), a.gelu_(x.clone()))
a._trilinear(draw(3, 4), draw(5, 4), draw(3, 5), [1], [0], [2], [2])
a._unsafe_masked_index(x, mask, [t.tensor([0, 1, 2]), t.tensor([3, 0, 1])], 5.0)
a._unsafe_masked_index(v, mask, [t.tensor([0, 1, 3])], 5.0)
a._unsafe_masked_index_put_accumulate(v, mask, [t.tensor([0, 1, 0])], draw(3))
a.rrelu_with_noise(x, t.zeros(3, 4))
a.rrelu_with_noise_backward(y, x, x.abs(), 0.1, 0.3, True, False)
a.rrelu_with_noise_backward(y, x, x.abs(), 0.1, 0.3, False, False)
(list(a._foreach_clone([x, v])), list(a._foreach_max([x, v])), list(a._foreach_zero([x])), \
    list(a._foreach_copy([x], [y])))
a._linalg_det(square)[0]
a._linalg_slogdet(square)[:2]
a._linalg_solve_ex(square, draw(3, 2))[0]
a.cummaxmin_backward(y, x, x.cummax(1)[1], 1)
a.cumprod_backward(y, x, 1, x.cumprod(1))
a.matrix_exp_backward(square, draw(3, 3))
a.infinitely_differentiable_gelu_backward(y, x)
a.gather_backward(y, table[:3], 1, t.arange(12).reshape(3, 4) % 4, False)
a.index_select_backward(table, [6, 4], 0, t.tensor([0, 1, 1, 5, 0]))
a.masked_select_backward(draw(2, 4).reshape(8), x, t.arange(12).reshape(3, 4) < 8)
a.trace_backward(t.tensor(3.0), [3, 3])
a.value_selecting_reduction_backward(draw(3), 1, x.max(1)[1], [3, 4], False)
a.value_selecting_reduction_backward(draw(3, 1), 1, x.max(1)[1].unsqueeze(1), [3, 4], True)
a.embedding_backward(draw(4, 4), idx, 5, -1, False, False)
a.embedding_backward(draw(4, 4), idx, 5, 2, True, False)
a.affine_grid_generator_backward(draw(2, 3, 3, 2), [2, 1, 3, 3], True)
a.unique_dim(t.tensor([[2, 1], [0, 5], [2, 1]]), 0, True, True, True)
a.unique_dim_consecutive(t.tensor([[2, 1], [2, 1], [0, 5]]), 0, True, True)
(a.resize(x, [2, 3]), a.resize_as(x, y[:2]))
(a.binomial(t.full((3,), 5.0), t.ones(3)), a.binomial(t.full((3,), 5.0), t.zeros(3)))
(a._standard_gamma(x.abs() + 1).shape, a._sample_dirichlet(x.abs() + 1).sum(1).round(), a.normal_functional(x, \
    0.0, 0.0))
a.to_dense_backward(x, y)
"""


@pytest.mark.parametrize("part", range(4))
def test_calls_give_what_pytorch_gives(tg: Any, rng: np.random.Generator, part: int) -> None:
    values = rng.standard_normal(4000).tolist()
    failures = []
    for call in CALLS.strip().splitlines()[part::4]:
        try:
            assert_same(*evaluate(f"{PROLOGUE}plain({call})", tg, values=values))
        except AssertionError as error:
            failures.append(f"{call}\n    {str(error)[:400]} {error.__cause__!r}"[:700])
    assert not failures, "\n".join(failures)
