"""More programs as in ``usual_programs``: those whose authors write optimizers, losses and sums by index themselves."""

from __future__ import annotations

import copy
from typing import Any

import telegrad as tg

from .usual_programs import Program, Sizes

nn, F = tg.nn, tg.nn.functional
ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.ReLU6, nn.Tanh,
    nn.Softplus, nn.Sigmoid, nn.LogSigmoid, nn.Hardtanh, nn.CELU, nn.Softsign,
)  # fmt: skip


def _own_optimizer(sizes: Sizes) -> None:
    """Adam as people write it, and an average of the weights."""
    model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.LayerNorm(48), nn.Linear(48, 5))
    average, state = copy.deepcopy(model), dict[Any, Any]()
    for step, count in enumerate(sizes.counts, 1):
        loss = F.cross_entropy(model(tg.randn(count, 20)), tg.randint(0, 5, (count,)))
        model.zero_grad()
        loss.backward()
        with tg.no_grad():
            for p, q in zip(model.parameters(), average.parameters(), strict=True):
                first, second = state.setdefault(p, (tg.zeros_like(p), tg.zeros_like(p)))
                gradient = p.grad + 0.01 * p
                first.mul_(0.9).add_(gradient, alpha=0.1)
                second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
                p.addcdiv_(first / (1 - 0.9**step), (second / (1 - 0.99**step)).sqrt().add_(1e-8), value=-1e-3)
                p -= 1e-4 * gradient.sign().clamp_(max=1.0)
                q.lerp_(p, 0.1)
        loss.item()


def _activated(sizes: Sizes) -> None:
    """Networks with each activation, of which most have a gradient of their own."""
    for kind, count in zip(ACTIVATIONS, sizes.counts * 4, strict=False):
        model = nn.Sequential(nn.Linear(12, 33), kind(), nn.Dropout(0.2), nn.Linear(33, 1))
        optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x = tg.randn(count, 12)
        for loss_of in (tg.mean, lambda y, x=x: (y - x.sum(1, keepdim=True)).abs().sum()):
            loss = loss_of(model(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()


def _values(sizes: Sizes) -> None:
    """Values of actions, from a network that follows the one that is trained."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    target, optimizer = copy.deepcopy(model), tg.optim.RMSprop(model.parameters(), lr=1e-3)
    for count in sizes.counts:
        state, after, rewards = tg.randn(count, 8), tg.randn(count, 8), tg.randn(count)
        actions, ends = tg.randint(0, 4, (count,)), (tg.rand(count) < 0.1).float()
        with tg.no_grad():
            wanted = rewards + 0.99 * (1 - ends) * target(after).max(1).values
        loss = F.smooth_l1_loss(model(state).gather(1, actions[:, None]).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        with tg.no_grad():
            for p, q in zip(model.parameters(), target.parameters(), strict=True):
                q.lerp_(p, 0.01)
        int(model(state[:1]).argmax(1).item())


def _penalty(sizes: Sizes) -> None:
    """A critic whose gradients are to have the norm 1, and a generator against it."""
    critic = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 6), nn.Tanh())
    both = [tg.optim.Adam(m.parameters(), lr=1e-4, betas=(0.5, 0.9)) for m in (critic, generator)]
    for count in sizes.counts:
        real, made = tg.randn(count, 6), generator(tg.randn(count, 4))
        share = tg.rand(count, 1)
        between = (share * real + (1 - share) * made.detach()).requires_grad_()
        (gradient,) = tg.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((gradient.norm(2, dim=1) - 1) ** 2).mean()
        for optimizer in both:
            if optimizer is both[0]:
                loss = critic(made.detach()).mean() - critic(real).mean() + 10 * penalty
            else:
                loss = -critic(made).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()


def _graphs(sizes: Sizes) -> None:
    """Attention between the ends of edges, and sums by index."""
    width = 24
    embed, score, out = nn.Linear(16, width), nn.Linear(2 * width, 1), nn.Linear(width, 3)
    optimizer = tg.optim.Adam([*embed.parameters(), *score.parameters(), *out.parameters()], lr=1e-2)
    for count in sizes.counts:
        sources, targets = tg.randint(0, count, (2, 5 * count))
        h = embed(tg.randn(count, 16))
        weights = F.leaky_relu(score(tg.cat([h[sources], h[targets]], 1)).squeeze(1), 0.2)
        weights = (weights - weights.max()).exp()
        total = tg.zeros(count).scatter_add(0, targets, weights) + 1e-9
        rows = h[sources] * (weights / total[targets])[:, None]
        h = tg.zeros_like(h).index_add(0, targets, rows).relu()
        loss = F.nll_loss(out(h).log_softmax(1), tg.randint(0, 3, (count,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def _pairs(sizes: Sizes) -> None:
    """Likeness of what belongs together, by angles and by distances."""
    left, right = nn.Linear(10, 16), nn.Linear(12, 16)
    scale = nn.Parameter(tg.tensor(2.0))
    optimizer = tg.optim.AdamW([*left.parameters(), *right.parameters(), scale], lr=1e-3)
    for count in sizes.counts:
        a, b = F.normalize(left(tg.randn(count, 10)), dim=1), F.normalize(right(tg.randn(count, 12)), dim=1)
        scores, places = scale.exp() * a @ b.t(), tg.arange(count)
        loss = (F.cross_entropy(scores, places) + F.cross_entropy(scores.t(), places)) / 2
        loss = loss + F.triplet_margin_loss(a, b, b.roll(1, 0)) + (1 - F.cosine_similarity(a, b)).mean()
        loss = loss + tg.cdist(a, b).diagonal().mean() + (a - a.mean(0)).pow(2).sum(1).add(1e-6).sqrt().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def _translation(sizes: Sizes) -> None:
    """A Transformer of both kinds of layers, with padding, and a schedule."""
    model = nn.Transformer(32, 2, 1, 1, 64, dropout=0.1, batch_first=True)
    embed, out = nn.Embedding(40, 32), nn.Linear(32, 40)
    parameters = [*model.parameters(), *embed.parameters(), *out.parameters()]
    optimizer = tg.optim.Adam(parameters, lr=1e-3)
    schedule = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 10, 1))
    for long, short in zip(sizes.lengths, sizes.lengths[1:], strict=False):
        source, target = tg.randint(0, 40, (4, long)), tg.randint(0, 40, (4, short + 1))
        padded, mask = source == 1, nn.Transformer.generate_square_subsequent_mask(short)
        seen = model(
            embed(source), embed(target[:, :-1]), tgt_mask=mask, src_key_padding_mask=padded,
            memory_key_padding_mask=padded, tgt_is_causal=True,
        )  # fmt: skip
        loss = F.cross_entropy(out(seen).transpose(1, 2), target[:, 1:], ignore_index=1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        schedule.step()
        loss.item()


def _spectra(sizes: Sizes) -> None:
    """A filter of signals that is learnt, and losses of magnitudes."""
    gains = nn.Parameter(tg.ones(33))
    optimizer = tg.optim.Adam([gains], lr=1e-2)
    for count in sizes.counts:
        signal = tg.randn(count, 64)
        spectrum = tg.fft.rfft(signal) * gains
        back = tg.fft.irfft(spectrum, 64)
        loss = (back - signal).pow(2).mean() + (spectrum.abs() + 1e-6).log().mean() + spectrum.real.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def _counts(sizes: Sizes) -> None:
    """How right predictions are, class by class, and what of them is far off."""
    for count in sizes.counts:
        scores, labels = tg.randn(count, 7), tg.randint(0, 7, (count,))
        chosen = scores.argmax(1)
        (chosen == labels).float().mean().item()
        ((chosen == 2) & (labels == 2)).sum().item()
        (scores.topk(min(3, count), 1).indices == labels[:, None]).any(1).float().sum().item()
        tg.bincount(labels, minlength=7).float().div(count).tolist()
        scores.std(0).mean().item(), scores.median().item(), scores.abs().max().item()
        scores.round().clamp(-2, 2).trunc().sum().item()
        (scores.softmax(1) * scores.log_softmax(1)).sum(1).neg().mean().item()
        tg.where(scores > 0, scores, scores * 0.1).min(1).values.sum().item()


BY_HAND: dict[str, Program] = {
    "own optimizer": _own_optimizer, "activations": _activated, "values": _values, "penalty": _penalty,
    "graphs": _graphs, "pairs": _pairs, "translation": _translation, "spectra": _spectra, "counts": _counts,
}  # fmt: skip
