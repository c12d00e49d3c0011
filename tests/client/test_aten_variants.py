"""Operators that are other functions under another name: the same calls give the same results under PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from .test_aten_internals import PROLOGUE
from .twins import assert_same, evaluate

CALLS = """
a._upsample_bilinear2d_aa(planes, [3, 4], False)
a._upsample_bicubic2d_aa(planes, [4, 3], True)
a._upsample_bilinear2d_aa_backward(draw(2, 4, 3, 4), [3, 4], [2, 4, 6, 6], False)
a._upsample_bicubic2d_aa_backward(draw(2, 4, 4, 3), [4, 3], [2, 4, 6, 6], True)
a._upsample_nearest_exact1d_backward(draw(2, 4, 7), [7], [2, 4, 5])
a._upsample_nearest_exact2d_backward(draw(2, 4, 4, 9), [4, 9], [2, 4, 6, 6])
a._upsample_nearest_exact3d_backward(draw(1, 2, 5, 3, 4), [5, 3, 4], [1, 2, 4, 4, 4])
a.fractional_max_pool2d_backward(draw(2, 4, 2, 2), planes, [2, 2], [2, 2], a.fractional_max_pool2d(planes, [2, 2], [2, \
    2], t.full((2, 4, 2), 0.3, dtype=t.float64))[1])
a.fractional_max_pool3d_backward(draw(1, 2, 2, 2, 2), volume, [2] * 3, [2] * 3, a.fractional_max_pool3d(volume, [2] * \
    3, [2] * 3, t.full((1, 2, 3), 0.3, dtype=t.float64))[1])
a.multilabel_margin_loss_forward(x, t.tensor([[1, 3, -1, 0], [-1, 0, 0, 0], [0, 1, 2, 3]]), 1)
a.multilabel_margin_loss_forward(v, t.tensor([2, 0, -1, 1]), 0)
a.multilabel_margin_loss_backward(v[:3].abs(), x, t.tensor([[1, 3, -1, 0], [-1, 0, 0, 0], [0, 1, 2, 3]]), 0, \
    a.multilabel_margin_loss_forward(x, t.tensor([[1, 3, -1, 0], [-1, 0, 0, 0], [0, 1, 2, 3]]), 0)[1])
a._scaled_dot_product_flash_attention_for_cpu_backward(draw(1, 2, 3, 4), q, k, u, \
    *a._scaled_dot_product_flash_attention_for_cpu(q, k, u, 0.0, True), 0.0, True)
a._transform_bias_rescale_qkv(draw(2, 3, 12).float(), draw(12).float(), 2)
a.glu_jvp(a.glu(planes, 1), planes, planes.sin(), 1)
a._weight_norm_differentiable_backward(y, x, draw(3, 1), x.norm(2, 1, keepdim=True), 0)
a._weight_norm_interface_backward(y, x, draw(3, 1), x.norm(2, 1, keepdim=True), 0)
a._pack_padded_sequence_backward(draw(6, 5), [2, 4, 5], t.tensor([2, 2, 1, 1]), True)
a._convert_indices_from_coo_to_csr(t.tensor([0, 0, 1, 3]), 5, out_int32=True)
a._convert_indices_from_csr_to_coo(t.tensor([0, 2, 3, 3]), t.tensor([1, 4, 0]))
a._convert_indices_from_csr_to_coo(t.tensor([0, 2, 3, 3]), t.tensor([1, 4, 0]), out_int32=True, transpose=True)
a._histogramdd_bin_edges(x[:, :2].contiguous(), [3, 2])
a._histogramdd_from_bin_cts(x[:, :2].contiguous(), [3, 2], range=[-1.0, 1.0, -2.0, 2.0])
a._histogramdd_from_bin_tensors(x[:, :2].contiguous(), [t.tensor([-1.0, 0, 1]).double(), t.tensor([-3.0, 0, \
    2]).double()])
(a._pad_enum(planes, [1, 2], 0), a._pad_enum(batch, [1, 2], 1), a._pad_enum(batch, [1, 2], 2), a._pad_enum(x, [1], 3))
a._masked_softmax_backward(y, a._masked_softmax(x, x > 0.5, 1, 2), x > 0.5, 1)
(a._index_put_impl(v, [idx[:2]], v[:2]), a._index_put_impl(x, [None, idx[:2]], y[:, :2], True), v)
a._reshape_alias_copy(x, [4, 3], [1, 4])
[a.is_non_overlapping_and_dense(z) for z in (x, x.t(), x[:, 1:], x[:1], v[::2], v[:0], x[None].expand(2, 3, 4))]
a.mkldnn_convolution(planes.float(), kernel.float(), bias.float(), [1, 0], [2, 1], [1, 1], 1)
a.conv_tbc_backward(draw(3, 2, 3), draw(4, 2, 5), draw(2, 5, 3), draw(3), 0)
a.batch_norm_backward(planes * 2, planes, w, mean, var, *a.native_batch_norm(planes, w, b, None, None, True, 0.1, \
    1e-5)[1:], True, 1e-5, [True, True, True], t.zeros(0, dtype=t.uint8))
a._grouped_mm(draw(6, 8).bfloat16(), draw(2, 8, 16).bfloat16(), t.tensor([2, 6], dtype=t.int32)).shape
(a._coalesce(c := t.sparse_coo_tensor([[0, 0, 1]], [1.0, 2, 3], (2,))).to_dense(), c._indices())
a._sparse_softmax.default(t.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 3)), 1, False).to_dense()
a._spdiags(t.ones(2, 3), t.tensor([0, 1]), [3, 3]).to_dense()
a._sparse_csr_tensor_unsafe(t.tensor([0, 1, 2]), t.tensor([0, 1]), t.ones(2), [2, 2]).to_dense()
a._sparse_coo_tensor_unsafe(t.tensor([[0, 1]]), t.ones(2), [3]).to_dense()
[getattr(a, f"_to_sparse_{layout}")(t.eye(4)).to_dense() for layout in ("csr", "csc")]
[getattr(a, f"_to_sparse_{layout}")(t.eye(4), [2, 2]).to_dense() for layout in ("bsr", "bsc")]
a._sparse_log_softmax.default(t.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 3)), 1, False).to_dense()
a._sparse_sparse_matmul(t.eye(3).to_sparse(), t.ones(3, 2).to_sparse()).to_dense()
a._sparse_csc_tensor_unsafe(t.tensor([0, 1, 2]), t.tensor([0, 1]), t.ones(2), [2, 2]).to_dense()
(a.linalg__powsum(x, 3.0, [1], True), a.linalg__powsum(x))
[a.nll_loss(logits, labels, None, reduction) for reduction in range(3)]
[a.nll_loss(logits, labels, v.abs()), a.nll_loss(logits, labels, v.abs(), 2, 1)]
[a.multilabel_margin_loss(x, t.tensor([[1, 3, -1, 0], [-1, 0, 0, 0], [0, 1, 2, 3]]), reduction) for reduction in \
    range(3)]
(a.elu(x), a.elu(x, 2), a.elu(x, 2, 3, 0.5), a.elu_(x.clone(), 1.5, 2, 0.5))
a.tensordot(x, batch[0].reshape(5, 4), [1], [1])
"""


def test_calls_give_what_pytorch_gives(tg: Any, rng: np.random.Generator) -> None:
    values = rng.standard_normal(6000).tolist()
    failures = []
    for call in CALLS.strip().replace("\\\n", "").splitlines():
        try:
            assert_same(*evaluate(f"{PROLOGUE}plain({call})", tg, values=values))
        except AssertionError as error:
            failures.append(f"{call}\n    {str(error)[:400]} {error.__cause__!r}"[:700])
    assert not failures, "\n".join(failures)
