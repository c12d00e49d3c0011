"""Functions that the client composes of operations: values and gradients on the samples of PyTorch's database."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.client.twins import assert_same, evaluate

from .pairs import Arguments, assert_close, flat

MOST_SAMPLES = 24
"""So many of an entry's samples are run, evenly chosen."""
NAMES = {
    "affine_grid", "channel_shuffle", "cosine_embedding_loss", "ctc_loss", "embedding_bag", "gaussian_nll_loss",
    "grid_sample", "hinge_embedding_loss", "instance_norm", "interpolate", "local_response_norm",
    "margin_ranking_loss", "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss", "upsample_bilinear", "upsample_nearest",
}  # fmt: skip
ENTRIES = {
    " ".join((op.name.removeprefix("nn.functional."), op.variant_test_name)).strip(): op
    for op in op_db
    if op.name.removeprefix("nn.functional.") in NAMES
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENTRIES)
def test_function_is_pytorchs(tg: Any, name: str, seed: int) -> None:
    torch.manual_seed(seed)
    entry = ENTRIES[name]
    samples = list(entry.sample_inputs("cpu", torch.float64, requires_grad=True))
    function = getattr(tg.nn.functional, entry.name.removeprefix("nn.functional."))
    for sample in samples[:: -(-len(samples) // MOST_SAMPLES)]:
        if "training" in sample.kwargs:
            sample.kwargs["training"] = False  # dropout draws other numbers
        given = Arguments(tg)
        args = given.translated([sample.input, *sample.args])
        if name == "embedding_bag":  # the database gives the table first, the function takes it second
            args[:2] = args[1::-1]
        ours = flat(function(*args, **given.translated(sample.kwargs)))
        theirs = flat(entry.op(sample.input, *sample.args, **sample.kwargs))
        _compare(tg, ours, theirs, given.leaves)


def _compare(tg: Any, ours: list[Any], theirs: list[Any], leaves: list[Any]) -> None:
    for mine, reference in zip(ours, theirs, strict=True):
        assert_close(mine, reference, "result")
    outputs = [(m, t) for m, t in zip(ours, theirs, strict=True) if t.requires_grad]
    for reference, _ in leaves:
        reference.grad = None
    for number, (mine, reference) in enumerate(outputs):
        weight = torch.randn_like(reference)
        keep = number + 1 < len(outputs)
        (reference * weight).sum().backward(retain_graph=keep)
        (mine * tg.tensor(weight.numpy())).sum().backward(retain_graph=keep)
    for reference, mine in leaves if outputs else ():
        if reference.grad is None or mine.grad is None:
            one = mine.grad if reference.grad is None else reference.grad
            assert one is None or not one.any().item(), "one side has no gradient, and the other one is not zero"
        else:
            assert_close(mine.grad, reference.grad, "gradient")


def test_every_entry_is_there() -> None:
    assert {name.split()[0] for name in ENTRIES} >= NAMES - {"affine_grid"}


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 1, 4)], ids=str)
def test_affine_grid(tg: Any, size: tuple[int, ...], aligned: bool, seed: int) -> None:
    torch.manual_seed(seed)
    dims = len(size) - 2
    theta = torch.randn(2, dims, dims + 1, dtype=torch.float64)
    expected = torch.nn.functional.affine_grid(theta, list(size), aligned)
    assert_close(tg.nn.functional.affine_grid(tg.tensor(theta.numpy()), size, aligned), expected, "grid")


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_images_are_resized_in_single_precision(tg: Any, mode: str, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(1, 2, 13, 29)
    for options in (
        {"size": (31, 7)},
        {"scale_factor": 2.5},
        {"scale_factor": (0.37, 1.7), "recompute_scale_factor": True},
    ):
        expected = torch.nn.functional.interpolate(x, mode=mode, **options)
        assert_close(tg.nn.functional.interpolate(tg.tensor(x.numpy()), mode=mode, **options), expected, str(options))


@pytest.mark.parametrize("antialias_mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 40), (20, 7)], ids=str)
def test_antialiased(tg: Any, antialias_mode: str, size: tuple[int, int], seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(1, 2, 20, 21, dtype=torch.float64)
    options: dict[str, Any] = {"size": size, "mode": antialias_mode, "antialias": True}
    expected = torch.nn.functional.interpolate(x, **options)
    np.testing.assert_allclose(
        tg.nn.functional.interpolate(tg.tensor(x.numpy()), **options).numpy(), expected.numpy(), atol=1e-6
    )


@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"antialias": True}], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_of_bytes_are_resized_to_pytorchs_bytes(
    tg: Any, mode: str, options: dict[str, bool], rng: np.random.Generator
) -> None:
    for channels, size in itertools.product((1, 3, 5), ((3, 5), (7, 7), (20, 13), (9, 5), (4, 8))):
        x = rng.integers(0, 256, (2, channels, 9, 8), dtype=np.uint8)
        expected = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode, **options)
        resized = tg.nn.functional.interpolate(tg.tensor(x), size, mode=mode, **options)
        np.testing.assert_array_equal(resized.numpy(), expected.numpy(), strict=True)
    scaled = {"scale_factor": (1.7, 0.6), "mode": mode, **options}
    expected = torch.nn.functional.interpolate(torch.from_numpy(x), **scaled)
    np.testing.assert_array_equal(tg.nn.functional.interpolate(tg.tensor(x), **scaled).numpy(), expected.numpy())


@pytest.mark.parametrize(
    "program",
    [
        "t.nn.functional.interpolate({x}, (5, 3), mode='nearest')",
        "t.nn.functional.interpolate({x}, (5, 3), mode='bilinear')",
        "t.nn.functional.interpolate({v}, (5, 3, 2), mode='nearest-exact')",
        "t.nn.functional.interpolate({v}, (5, 3, 2), mode='trilinear')",
        "t.nn.functional.channel_shuffle({x}, 2)",
    ],
)
def test_channels_stay_innermost(tg: Any, program: str) -> None:
    image = "t.arange(96.0).view(2, 4, 3, 4).contiguous(memory_format=t.channels_last)"
    volume = "t.arange(192.0).view(2, 4, 2, 3, 4).contiguous(memory_format=t.channels_last_3d)"
    assert_same(*evaluate(program.format(x=image, v=volume), tg))


def test_gumbel_softmax_draws_from_the_distribution(tg: Any) -> None:
    tg.manual_seed(3)
    logits = tg.tensor([0.2, 0.3, 0.5]).log().expand(4000, 3).contiguous().requires_grad_()
    drawn = tg.nn.functional.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(drawn.detach().mean(0).tolist(), [0.2, 0.3, 0.5], atol=0.03)
    assert set(np.unique(drawn.detach().round().numpy()).tolist()) == {0.0, 1.0}
    drawn[:, 0].sum().backward()
    assert logits.grad.abs().sum().item() > 0


def test_ctc_loss_of_what_cannot_be_aligned(tg: Any) -> None:
    probs = torch.randn(3, 2, 4, dtype=torch.float64).log_softmax(-1).requires_grad_()
    targets, lengths = torch.tensor([[1, 1, 1], [2, 3, 0]]), ([3, 3], [3, 2])
    for zero in (False, True):
        options: dict[str, Any] = {"zero_infinity": zero, "reduction": "none"}
        probs.grad = None
        expected = torch.nn.functional.ctc_loss(probs, targets, *lengths, **options)
        mine = tg.tensor(probs.detach().numpy(), requires_grad=True)
        ours = tg.nn.functional.ctc_loss(mine, tg.tensor(targets.numpy()), *lengths, **options)
        np.testing.assert_allclose(ours.tolist(), expected.tolist(), rtol=1e-9)
        expected.sum().backward()
        ours.sum().backward()
        np.testing.assert_allclose(mine.grad.numpy(), probs.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_functions_have_pytorchs_signatures(tg: Any) -> None:
    for name in sorted(NAMES):
        theirs, ours = (getattr(t.nn.functional, name) for t in (torch, tg))
        try:
            expected = inspect.signature(theirs)
        except ValueError:
            continue  # a builtin
        found = inspect.signature(ours)
        assert [(p.name, p.kind, p.default) for p in found.parameters.values()] == [
            (p.name, p.kind, p.default) for p in expected.parameters.values()
        ], name


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("aligned", [True, False])
def test_affine_grids_of_the_identity_are_pytorchs_to_the_last_bit(tg: Any, aligned: bool, seed: int) -> None:
    """Whether a place lies on an element or a little beside it decides which neighbours give its gradient."""
    for shape in np.random.default_rng(seed).integers(1, 70, (12, 3)).tolist():
        for sizes in (shape[:2], shape):
            size = (1, 1, *sizes)
            identity = torch.eye(len(sizes), len(sizes) + 1)[None]
            ours = tg.nn.functional.affine_grid(tg.tensor(identity.numpy()), size, align_corners=aligned)
            theirs = torch.nn.functional.affine_grid(identity, size, align_corners=aligned)
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=str(size))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [True, False])
def test_places_on_elements_and_edges_have_pytorchs_gradients(tg: Any, aligned: bool, padding: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    for n in (4, 5, 8, 16):
        picture, factors = random.standard_normal((2, 1, 2, n, n)).astype(np.float32)
        grads = []
        for library in (tg, torch):
            grid = library.nn.functional.affine_grid(library.eye(2, 3)[None], (1, 2, n, n), align_corners=aligned)
            grid = grid.detach().requires_grad_()
            sampled = library.nn.functional.grid_sample(
                library.tensor(picture), grid, padding_mode=padding, align_corners=aligned
            )
            (sampled * library.tensor(factors)).sum().backward()
            grads.append(grid.grad.numpy())
        np.testing.assert_allclose(*grads, rtol=1e-4, atol=1e-4 * n, err_msg=str(n))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_that_are_no_numbers_are_sampled_as_by_pytorch(tg: Any, mode: str) -> None:
    places = [[0.0, np.nan], [np.nan, 0.3], [np.inf, 0.0], [-np.inf, 0.0], [1e30, -1e30], [-0.2, 0.1]]
    picture, grid = np.arange(1.0, 17.0).reshape(1, 1, 4, 4), np.array([[places]])
    for padding in ("zeros", "border", "reflection"):
        for aligned in (True, False):
            sampled = [
                library.nn.functional.grid_sample(
                    library.tensor(picture),
                    library.tensor(grid),
                    mode=mode,
                    padding_mode=padding,
                    align_corners=aligned,
                ).numpy()
                for library in (tg, torch)
            ]
            np.testing.assert_allclose(*sampled, rtol=1e-6, err_msg=f"{padding} {aligned}")
