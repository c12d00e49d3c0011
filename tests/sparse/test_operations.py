"""Operations on sparse tensors give PyTorch's results and refusals: the same layouts, shapes, dtypes and elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .twins import difference, outcome

ELEMENTWISE = [
    "a.is_contiguous()",
    "a.new()",
    "a.new(2, 3)",
    "a.new(t.Size([2, 3])), a.double().new(3)",
    "a.new(a._indices(), a._values() * 2, a.size())",
    "a.new(a._indices(), a._values().double(), (9, 9))",
    "a.new(a._indices(), a._values())",
    "a.new().resize_as_(a)",
    "a.new(a)",
    "a.new([1, 2])",
    "a.new(a._indices(), [1.])",
    "d.coalesce()",
    "d.to_dense() is d",
    "a+c",
    "(c+c).is_coalesced()",
    "(a+a).is_coalesced(), (a+a)._nnz()",
    "a+d",
    "d+a",
    "a*d",
    "d*a",
    "a*c",
    "c*c",
    "a*2",
    "a/2",
    "a/d",
    "d-a",
    "2*a",
    "a+1",
    "a*t.tensor(2.)",
    "r+r",
    "r*2",
    "r*r",
    "r+d",
    "d+r",
    "r*d",
    "d*r",
    "a**2",
    "-a",
    "abs(r)",
    "t.relu(a)",
    "t.sqrt(a)",
    "t.exp(a)",
    "t.cos(r)",
    "a==c",
    "t.equal(a, c)",
    "t.allclose(a, c)",
    "a.numpy()",
    "a.item()",
    "a.bool()",
    "a.int()",
    "r.double()",
    "a.half()",
    "a.mean()",
    "a.max()",
    "a.nbytes",
    "t.ones_like(a)",
    "bool(a)",
    "t.isnan(a)",
    "t.nan_to_num(a)",
    "t.add(a, c, alpha=2)",
    "t.sub(a, c)",
    "a.data",
    "a.sparse_dim(), a.dense_dim(), r.sparse_dim(), r.dense_dim(), d.sparse_dim(), d.dense_dim()",
    "a.mul(c)",
    "t.sign(a)",
    "t.where(a, 1, 2)",
    "a>0",
    "c.neg_()",
    "a.mul_(2)",
    "a.zero_()",
    "a.clone()",
    "a.detach()",
    "a.requires_grad_()",
    "d.sparse_mask(a)",
    "d.sparse_mask(c)",
    "d.sparse_mask(r)",
    "c.sparse_mask(c*2)",
    "r.to_dense()",
    "a.to(t.int64)",
    "a.type(t.float64)",
    "a.numel()",
    "a.size(1)",
    "a.copy_(c*2)",
    "d.add_(a)",
    "d.sub_(a, alpha=2)",
    "a.div_(2)",
    "a.is_same_size(d)",
    "t.is_tensor(a)",
    "t.log1p(a)",
    "a.square()",
    "t.floor_divide(a, 2)",
    "t.div(a, 2, rounding_mode='floor')",
    "a.conj()",
    "a.is_complex()",
    "a.coalesce() is a.coalesce()",
    "c.coalesce() is c",
    "c*t.ones(2, 2, 3)",
    "c*t.arange(12.).reshape(2, 1, 2, 3)",
    "t.sparse_coo_tensor([[0, 1]], [[1.], [2.]], (2, 1))*d",
    "c*t.ones(3, 3)",
    "d.mul_(c)",
    "c.mul_(d)",
    "r.clone().zero_()._nnz()",
    "c.__setitem__(0, 1.)",
]
WORDS = [
    "a.indices()",
    "a.values()",
    "d.is_coalesced()",
    "r.is_coalesced()",
    "t.sparse_csr_tensor([0, 1, 2], [1, 3], [1., 2.], (2, 2), check_invariants=True)",
]
PRODUCTS = [
    "a@d2",
    "r@d2",
    "d2.t()@a.t()",
    "d2.t()@r.to_sparse_csc().t()",
    "a@t.ones(3)",
    "r@t.ones(3)",
    "t.ones(2)@a",
    "a@a.t()",
    "r@r.t()",
    "t.hspmm(a, d2)",
    "t.sspaddmm(a, a@a.t()@a, t.eye(3))",
    "t.smm(a, d2)",
    "t.addmm(t.ones(2, 4), a, d2)",
    "t.addmm(t.ones(4), a, d2, beta=2, alpha=3)",
    "t.addmm(t.ones(2, 4), r, d2, beta=0.5)",
    "t.sparse.addmm(t.ones(2, 4), a, d2)",
    "t.sparse.mm(a, d2)",
    "t.sparse.mm(a, a.t())",
    "t.sparse.mm(r, d2, 'mean')",
    "t.sparse.mm(r, d2, 'amax')",
    "t.bmm(t.stack([c, c]), t.ones(2, 3, 2))",
    "t.sparse.sampled_addmm(r, d, t.ones(3, 3))",
    "t.sparse_coo_tensor(i, t.tensor([1+2j, 3, 4, 5j]))@d2.to(t.complex64)",
    "t.zeros(2, 3).to_sparse()@d2",
    "(a@d2).sum()",
    "t.eye(4).to_sparse_bsr((2, 2))@t.arange(8.).reshape(4, 2)",
    "t.nn.functional.linear(d, r.to_sparse_csr())",
    "t.nn.functional.linear(t.ones(5, 3), r)",
    "t.mv(a, t.ones(3))",
    "a.matmul(d2)",
    "a.mm(d2)",
    "a.smm(d2)",
    "t.ones(2, 4).addmm_(a, d2, beta=0.5, alpha=2)",
    "t.ones(2, 4).addmm_(r, d2)",
    "t.triangular_solve(t.ones(3, 1), (t.eye(3)+d2[:, :3].triu()).to_sparse_csr())[0]",
    "t.triangular_solve(t.ones(3, 1), (t.eye(3)+d2[:, :3].tril()).to_sparse_csr(), upper=False, transpose=True)[0]",
    "t.pca_lowrank(c, q=2)[1]",
    "t.lobpcg(t.diag(t.arange(1., 13.)).to_sparse(), k=1, X=t.ones(12, 1))[0]",
    "t.nn.functional.embedding(t.tensor([1, 0, 1]), c)",
]
SHAPES = [
    "a.sum()",
    "r.sum()",
    "a.sum(0)",
    "r.sum(0)",
    "r.sum(1, keepdim=True)",
    "r.sum(0, keepdim=True)",
    "t.sparse.sum(a, 0)",
    "t.sparse.sum(a)",
    "t.sparse.sum(a, (0, 1))",
    "a.t()",
    "r.t()",
    "a.transpose(0, 1)",
    "a.T",
    "a[0]",
    "r[0]",
    "a[0, 2]",
    "a.tolist()",
    "a.norm()",
    "t.cat([a, a])",
    "t.cat([a, a], 1)",
    "t.stack([a, a])",
    "t.narrow_copy(a, 1, 0, 2)",
    "a.index_select(0, t.tensor([1, 0]))",
    "a.index_select(1, t.tensor([2, 2, 0]))",
    "a.unsqueeze(0)",
    "a.view(6)",
    "a.reshape(6)",
    "len(a)",
    "list(a)",
    "t.any(a)",
    "t.sparse.softmax(a, 1)",
    "t.sparse.softmax(a, 0)",
    "t.sparse.log_softmax(a, 1)",
    "a.permute(1, 0)",
    "a.requires_grad_().to_dense().sum().requires_grad",
    "a.sparse_resize_((4, 5), 2, 0)",
    "a.sparse_resize_and_clear_((4, 5), 1, 1)",
    "a.abs().sum()",
    "t.sum(a, 1)",
    "a.any()",
    "a.unbind()",
    "a.norm(dim=(0, 1)), a.norm(dim=(0, 1), keepdim=True), a.norm(dim=0)",
    "a.stride(), a.stride(1), a.storage_offset(), r.storage_offset()",
    "r.stride()",
    "a.t_()",
    "a.transpose_(0, 1)",
    "a.unsqueeze_(1)",
    "t.hstack([c, c])",
    "t.hstack([c[0], c[1]])",
    "t.vstack([c[0], c[1]])",
    "c.resize_as_sparse_(t.zeros(4, 5).to_sparse())",
    "c.resize_as_sparse_(t.zeros(1, 1).to_sparse())",
]
CONSTRUCTION = [
    "t.sparse.FloatTensor(i, v, t.Size([2, 3]))",
    "t.sparse.DoubleTensor(i, v.double())",
    "t.sparse.FloatTensor(2, 3)",
    "r.to_sparse_csc()",
    "t.eye(4).to_sparse_bsr((2, 2))",
    "t.eye(4).to_sparse_bsc((2, 1))",
    "t.sparse_coo_tensor((2, 3))",
    "t.sparse_coo_tensor(size=(2, 3), dtype=t.int32)",
    "t.sparse_coo_tensor([[0, -1]], [1., 2.])",
    "t.sparse_coo_tensor([[0, 1]], [1., 2.]).is_coalesced()",
    "t.sparse_coo_tensor([[1]], [2.], (3,)).indices()",
    "t.sparse_coo_tensor(t.zeros(1, 0, dtype=t.int64), t.zeros(0, 2), (3, 2)).values()",
    "t.sparse_coo_tensor([[0, 1], [1, 0]], [1., 2.], (2, 2))[0].indices()",
    "a.values()",
    "a.indices()",
    "d.indices()",
    "r.indices()",
    "a.crow_indices()",
    "t.zeros_like(a)",
    "t.empty_like(a)",
    "t.zeros_like(r)",
    "t.ones_like(r)",
    "t.ones_like(r, dtype=t.float64)",
    "t.full_like(r, 2.5)",
    "r.clone().fill_(3)",
    "a.clone().fill_(3)",
    "a.type().rpartition('sparse.')[2], a.double().type().rpartition('sparse.')[2]",
    "t.zeros(2, 3, layout=t.sparse_coo)",
    "t.zeros(2, 3, layout=t.sparse_csr)",
    "a.is_sparse, r.is_sparse, r.is_sparse_csr",
    "a.layout==t.sparse_coo, r.layout==t.sparse_csr",
    "d.to_sparse()",
    "d.to_sparse(1)",
    "d.to_sparse_csr()",
    "d.to_sparse_csc()",
    "d.to_sparse(layout=t.sparse_csr)",
    "d.to_sparse(layout=t.sparse_bsr, blocksize=(1, 3))",
    "r.to_sparse()",
    "r.to_sparse_coo().is_coalesced()",
    "r.to_sparse_csc().to_dense()",
    "t.sparse.spdiags(t.arange(9.).reshape(3, 3), t.tensor([0, -1, 2]), (3, 3)).to_dense()",
    "t.sparse.spdiags(t.arange(9.).reshape(3, 3), t.tensor([0, -1, 2]), (4, 5)).to_dense()",
    "t.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [9., 4., 5.])",
    "t.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [9., 4., 5.], (2, 4), dtype=t.float64)",
    "t.sparse_csr_tensor([0, 1, 3], [2, 0, 7], [9., 4., 5.], (2, 4), check_invariants=True)",
    "t.sparse_coo_tensor([[0, 1], [1, 5]], [1, 2], (2, 3), check_invariants=True)",
    "t.sparse_coo_tensor([[0, 1], [1, 5]], [1, 2, 3], (2, 3))",
    "t.sparse_coo_tensor([[0, 1], [1, 5]], [1, 2], (2, 3, 4))",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]])",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]).coalesce()",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]).to_dense()",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]).sum(2)",
    "t.sparse.sum(t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]), 2)._nnz()",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]).sum(2).is_coalesced()",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]).sum((0, 1))",
    "t.sparse_coo_tensor(i, [[1., 2], [3, 4], [5, 6], [7, 8]]).sum((0, 2))",
    "t.sparse_coo_tensor(i, [True, False, True, True]).coalesce()",
    "t.sparse_coo_tensor(i, [True, False, True, True]).to_dense()",
    "t.sparse_coo_tensor(i, t.tensor([1+2j, 3, 4, 5j])).coalesce()",
    "t.sparse_coo_tensor(i, t.tensor([1+2j, 3, 4, 5j])).to_dense()",
    "t.sparse_coo_tensor(t.empty(2, 0), t.empty(0), (2, 3)).coalesce().to_dense()",
    "t.sparse_coo_tensor(t.empty(2, 0), t.empty(0), (0, 3)).to_dense().shape",
    "t.zeros(0, 3).to_sparse().to_dense().shape",
    "t.zeros(0, 3).to_sparse_csr()",
    "t.zeros(2, 0).to_sparse_csr()",
    "t.zeros(2, 3).to_sparse()+a",
    "t.zeros(2, 3).to_sparse()*a",
    "t.tensor(3.).to_sparse()",
    "t.tensor(3.).to_sparse().to_dense()",
    "t.tensor(0.).to_sparse()",
    "t.stack([t.eye(2), t.ones(2, 2)*t.eye(2).flip(0)]).to_sparse_csr()",
    "t.stack([t.eye(2), t.ones(2, 2)*t.eye(2).flip(0)]).to_sparse_csr().to_dense()",
    "t.stack([t.eye(2), t.eye(2).flip(0)]).to_sparse_csr()[1]",
    "t.eye(4).to_sparse_csr().to_sparse_bsr((2, 2))",
    "t.eye(4).to_sparse_bsr(2)",
    "t.eye(4).to_sparse(layout=t.sparse_bsc, blocksize=2)",
    "t.eye(4).to_sparse_csc().to_sparse_bsc((2, 2)).to_dense()",
    "c.indices().shape, c.values()",
    "r.crow_indices(), r.col_indices(), r.values()",
    "t.crow_indices_copy(r)",
    "t.sparse_coo_tensor([[1]], 2.0, (3,))",
    "t.sparse_coo_tensor([[0, 1]], 2.0, (3,))",
    "t.sparse_coo_tensor(t.tensor([[0., 1.]]), [2.0, 3.0], (3,))",
    "a.to_sparse(1)",
    "a.to_sparse(2)",
    "c.new_zeros(2, 2), c.new_empty((1, 2)), c.new_zeros(2, dtype=t.int64)",
    "r.new_zeros(2, 2)",
    "t.zeros_like(c, layout=t.strided), t.ones_like(c, layout=t.strided)",
    "repr(t.nn.Parameter(c)).splitlines()[0]",
]


def operands(t: Any) -> dict[str, Any]:
    """Return tensors that are uncoalesced, coalesced, by rows and dense, with indices and values."""
    i, v = t.tensor([[0, 1, 1, 0], [2, 0, 2, 2]]), t.tensor([3.0, 4, 5, 6])
    a = t.sparse_coo_tensor(i, v, (2, 3))
    c = a.coalesce()
    d, d2 = t.arange(6.0).reshape(2, 3), t.arange(12.0).reshape(3, 4)
    return {"i": i, "v": v, "a": a, "c": c, "r": c.to_sparse_csr(), "d": d, "d2": d2}


COMPARED = [
    "t.testing.assert_close(a, a.clone())",
    "t.testing.assert_close(a, c)",
    "t.testing.assert_close(c, c*2)",
    "t.testing.assert_close(c, c.t())",
    "t.testing.assert_close(c, t.zeros(2, 3).to_sparse())",
    "t.testing.assert_close(c, d)",
    "t.testing.assert_close(c, c.to_dense(), check_layout=False)",
    "t.testing.assert_close(r, r.clone())",
    "t.testing.assert_close(r, r*2)",
    "t.testing.assert_close(r, t.sparse_csr_tensor(r.crow_indices(), r.col_indices()//2, r.values(), (2, 3)))",
    "t.testing.assert_close(r.to_sparse_csc(), r.to_sparse_csc()*2)",
]


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch tells that it checks no indices, and that CSR is in beta state
@pytest.mark.parametrize("text", COMPARED)
def test_comparisons_of_sparse_tensors_say_what_pytorchs_say(tg: Any, text: str) -> None:
    texts = []
    for library in (tg, torch):
        try:
            eval(text, {"t": library, **operands(library)})  # noqa: S307 - the test's own expressions
            texts.append("")
        except AssertionError as error:
            texts.append(str(error).replace("telegrad.", "torch."))
    assert texts[0] == texts[1]


def test_gradcheck_takes_functions_of_sparse_tensors(tg: Any) -> None:
    matrix = tg.eye(3, dtype=tg.float64).to_sparse().requires_grad_()
    assert tg.autograd.gradcheck(lambda x: (x * x).to_dense(), (matrix,), masked=True)
    assert tg.autograd.gradcheck(lambda x: x * 3, (matrix.detach().to_sparse_csr().requires_grad_(),), masked=True)


@pytest.mark.parametrize("expressions", [ELEMENTWISE, PRODUCTS, SHAPES, CONSTRUCTION])
def test_results_and_refusals_are_pytorchs(tg: Any, expressions: list[str]) -> None:
    differences = {}
    for text in expressions:
        found = difference(outcome(text, tg, operands), outcome(text, torch, operands))
        if found:
            differences[text] = found
    assert differences == {}


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_leaf_is_no_other_tensor_than_the_values_that_it_was_made_of(tg: Any, layout: str) -> None:
    values = tg.tensor([1.0, 2.0])
    make = tg.sparse_coo_tensor if layout == "coo" else tg.sparse_csr_tensor
    leaf = make([[0, 1], [1, 0]], values, (2, 2)) if layout == "coo" else make([0, 1, 2], [1, 0], values, (2, 2))
    plain = leaf.detach()
    assert leaf.requires_grad_() is leaf and leaf.requires_grad and leaf.is_leaf
    assert not values.requires_grad and not plain.requires_grad
    tg.sparse.mm(leaf, tg.ones(2, 1)).sum().backward()
    assert leaf.grad.to_dense().tolist() == [[0, 1], [1, 0]] and values.grad is None
    values.mul_(3)  # the memory is the same
    assert leaf.detach().to_dense().tolist() == [[0, 3], [6, 0]]


@pytest.mark.parametrize("text", WORDS)
def test_refusals_have_pytorchs_words(tg: Any, text: str) -> None:
    ours, theirs = outcome(text, tg, operands), outcome(text, torch, operands)
    assert isinstance(ours, RuntimeError) and isinstance(theirs, RuntimeError)
    words = str(theirs).split(" is not satisfied")[0]
    assert words in str(ours).replace("is_coalesced:", "is_coalesced")
