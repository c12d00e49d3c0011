"""Greedy decoding with a cache of keys and values that grows by ``cat``: the same code over telegrad and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .models import GPT_2, gpt_class, set_weights

PROMPT = 16


def _attend(lib: Any, block: Any, x: Any, cache: list[Any], layer: int) -> Any:
    """The block's attention of new tokens to these and to the cached ones, which they are added to."""
    n, t, width = x.shape
    parts = block.qkv(block.ln_1(x)).split(width, dim=2)
    q, k, v = [part.view(n, t, block.heads, width // block.heads).transpose(1, 2) for part in parts]
    if cache[layer] is not None:
        k, v = lib.cat([cache[layer][0], k], 2), lib.cat([cache[layer][1], v], 2)
    cache[layer] = k, v
    mixed = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
    return block.out(mixed.transpose(1, 2).reshape(n, t, width))


def decoder(lib: Any, device: str, batch: int) -> Callable[[int], Any]:
    """Return what decodes so many tokens after a prompt with GPT-2 small in bfloat16, and returns the last ones."""
    rng = np.random.default_rng(0)
    model = gpt_class(lib)(GPT_2)
    set_weights(lib, model, rng, 0)
    model = model.to(device).to(lib.bfloat16)
    prompt = lib.tensor(rng.integers(0, GPT_2.vocabulary, (batch, PROMPT)), device=device)
    places = lib.arange(GPT_2.context, device=device)

    def forward(tokens: Any, at: int, cache: list[Any]) -> Any:
        x = model.tokens(tokens) + model.places(places[at : at + tokens.shape[1]])
        for layer, block in enumerate(model.blocks):
            x = x + _attend(lib, block, x, cache, layer)
            inner = lib.nn.functional.gelu(block.up(block.ln_2(x)), approximate="tanh")
            x = x + block.down(inner)
        return lib.nn.functional.linear(model.ln(x[:, -1]), model.tokens.weight).argmax(-1, keepdim=True)

    def decode(count: int) -> Any:
        cache: list[Any] = [None] * GPT_2.layers
        with lib.no_grad():
            tokens = forward(prompt, 0, cache)
            for number in range(count - 1):
                tokens = forward(tokens, PROMPT + number, cache)
        return tokens

    return decode
