"""Programs that use nested tensors give the same under PyTorch and under telegrad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
WORDS, CLASSES, WIDTH, HEADS = 40, 3, 16, 2
Sample = tuple[list[Any], Any]


def sentences(rng: np.random.Generator, count: int) -> Sample:
    """Return sentences of one to nine words, and their classes: which third of the vocabulary most words are from."""
    classes = rng.integers(0, CLASSES, count)
    third = WORDS // CLASSES
    texts = []
    for kind in classes:
        length = rng.integers(1, 10)
        own = rng.integers(kind * third, (kind + 1) * third, length)
        texts.append(np.where(rng.random(length) < 0.7, own, rng.integers(0, WORDS, length)))
    return texts, classes


def weights(rng: np.random.Generator) -> dict[str, Any]:
    sizes = {
        "embedding.weight": (WORDS, WIDTH), "project.weight": (3 * WIDTH, WIDTH), "project.bias": (3 * WIDTH,),
        "out.weight": (WIDTH, WIDTH), "out.bias": (WIDTH,), "norm.weight": (WIDTH,), "norm.bias": (WIDTH,),
        "head.weight": (CLASSES, WIDTH), "head.bias": (CLASSES,),
    }  # fmt: skip
    return {name: (rng.standard_normal(size) * 0.3).astype(np.float32) for name, size in sizes.items()}


def classifier(t: Any) -> Any:
    """Return a text classifier: words attend to the words of their sentence, whose mean is classified."""
    nn, functional = t.nn, t.nn.functional

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(WORDS, WIDTH)
            self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, words: Any) -> Any:
            x = self.embedding(words)
            parts = self.project(x).chunk(3, -1)
            query, key, value = (
                part.contiguous().unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2) for part in parts
            )
            attended = functional.scaled_dot_product_attention(query, key, value)
            x = self.norm(x + self.out(attended.transpose(1, 2).flatten(-2)))
            lengths = words.offsets().diff().unsqueeze(-1)
            return self.head(t.stack([part.sum(0) for part in x.unbind()]) / lengths)

    return Classifier()


def learned(t: Any, sample: Sample, state: dict[str, Any]) -> tuple[list[float], float]:
    """Return the losses of an epoch of training and how many sentences are classified right in the end."""
    texts, classes = sample
    model = classifier(t)
    model.load_state_dict({name: t.tensor(array) for name, array in state.items()})
    optimizer, losses = t.optim.Adam(model.parameters(), 0.01), []
    for first in range(0, len(texts), 16):
        words = t.nested.nested_tensor([t.tensor(text) for text in texts[first : first + 16]], layout=t.jagged)
        loss = t.nn.functional.cross_entropy(model(words), t.tensor(classes[first : first + 16]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    words = t.nested.nested_tensor([t.tensor(text) for text in texts], layout=t.jagged)
    right = (model(words).argmax(1) == t.tensor(classes)).float().mean()
    return [loss.item() for loss in losses], right.item()


def test_a_text_classifier_learns_on_jagged_batches(tg: Any, rng: np.random.Generator) -> None:
    sample, state = sentences(rng, 400), weights(rng)
    (ours, right), (theirs, expected) = learned(tg, sample, state), learned(torch, sample, state)
    np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4)
    assert right == pytest.approx(expected, abs=0.02) and np.mean(ours[-5:]) < np.mean(ours[:5])


def encoded(t: Any, sample: Sample, state: dict[str, Any]) -> tuple[Any, Any]:
    """Return what a Transformer encoder in inference gives for padded sentences, and the mean over their words."""
    texts, _ = sample
    layer = t.nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    model = t.nn.TransformerEncoder(layer, 2, norm=t.nn.LayerNorm(WIDTH)).eval()
    model.load_state_dict({name: t.tensor(array) for name, array in state.items()})
    table = t.tensor(np.linspace(-1, 1, WORDS * WIDTH, dtype=np.float32).reshape(WORDS, WIDTH)).sin()
    words = t.nn.utils.rnn.pad_sequence([t.tensor(text) for text in texts], batch_first=True, padding_value=-1)
    padding = words < 0
    with t.no_grad():
        output = model(table[words.clamp(min=0)], src_key_padding_mask=padding)
        kept = output.masked_fill(padding.unsqueeze(-1), 0.0)
        return output.numpy(), (kept.sum(1) / (~padding).sum(1, keepdim=True)).numpy()


def test_a_transformer_encoder_pads_in_inference(tg: Any, rng: np.random.Generator) -> None:
    sample = sentences(rng, 12)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    made = torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(WIDTH))
    state = {
        name: (value.numpy() + 0.1 * rng.standard_normal(value.shape)).astype(np.float32)
        for name, value in made.state_dict().items()
    }
    for ours, theirs in zip(encoded(tg, sample, state), encoded(torch, sample, state), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4)


def pooled(t: Any, sets: list[Any], table: Any, gate: Any) -> list[Any]:
    """Return sums, means, maxima and a gated mean of the embeddings of sets, and the gradient of the table."""
    embeddings = t.tensor(table, requires_grad=True)
    offsets = t.tensor(np.cumsum([0, *map(len, sets)]))
    indices = t.nested.nested_tensor_from_jagged(
        t.tensor(np.concatenate(sets)), offsets, min_seqlen=min(map(len, sets)), max_seqlen=max(map(len, sets))
    )
    rows = t.nn.functional.embedding(indices, embeddings)
    with t.no_grad():
        shown = [rows.sum(1), rows.mean(dim=1), rows.amax(1), (rows > 0).any(1)]
        shown.append((rows * t.sigmoid(rows @ t.tensor(gate))).softmax(1).to_padded_tensor(0.0).sum(1))
    scores = t.sigmoid(rows @ t.tensor(gate))
    (rows * scores).to_padded_tensor(0.0).sum(1).pow(2).sum().backward()
    return [*[one.numpy() for one in shown], embeddings.grad.numpy()]


def test_embeddings_of_sets_are_pooled(tg: Any, rng: np.random.Generator) -> None:
    sets = [rng.choice(WORDS, size, replace=False) for size in (3, 1, 7, 2, 5)]
    table = rng.standard_normal((WORDS, 6)).astype(np.float32)
    gate = rng.standard_normal((6, 1)).astype(np.float32)
    for ours, theirs in zip(pooled(tg, sets, table, gate), pooled(torch, sets, table, gate), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)
