"""Greedy decoding with a cache of keys and values that grows by ``cat``, or that has its full size from the beginning.

The same code runs over telegrad and PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .models import GPT_2, gpt_class, set_weights

PROMPT = 16
CACHED = 256
"""How many tokens a cache of a fixed size holds."""


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


def _model(lib: Any, device: str, rng: np.random.Generator) -> Any:
    """GPT-2 small in bfloat16, with weights that the generator gives."""
    model = gpt_class(lib)(GPT_2)
    set_weights(lib, model, rng, 0)
    return model.to(device).to(lib.bfloat16)


def decoder(lib: Any, device: str, batch: int) -> Callable[[int], Any]:
    """Return what decodes so many tokens after a prompt with GPT-2 small in bfloat16, and returns the last ones."""
    rng = np.random.default_rng(0)
    model = _model(lib, device, rng)
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


def _attend_cached(lib: Any, block: Any, x: Any, cache: tuple[Any, Any], position: Any, mask: Any) -> Any:
    """The block's attention of one new token, written into the cache, to all that the mask admits."""
    n, t, width = x.shape
    parts = block.qkv(block.ln_1(x)).split(width, dim=2)
    q, k, v = [part.view(n, t, block.heads, width // block.heads).transpose(1, 2) for part in parts]
    for kept, new in zip(cache, (k, v), strict=True):
        kept.index_copy_(2, position, new)
    mixed = lib.nn.functional.scaled_dot_product_attention(q, *cache, attn_mask=mask)
    return block.out(mixed.transpose(1, 2).reshape(n, t, width))


@cache
def _decoding_class(lib: Any) -> Any:
    """The class of what decodes a token, with a cache of keys and values in buffers."""

    class Decoding(lib.nn.Module):  # type: ignore[misc, name-defined]
        """Token (1, 1) at a position (1,) to the most likely next one (1, 1)."""

        def __init__(self, model: Any, device: str) -> None:
            super().__init__()
            self.model = model
            shape = (1, GPT_2.heads, CACHED, GPT_2.width // GPT_2.heads)
            self.register_buffer("places", lib.arange(CACHED, device=device))
            for layer in range(len(model.blocks)):
                for name in ("keys", "values"):
                    self.register_buffer(f"{name}_{layer}", lib.zeros(shape, device=device, dtype=lib.bfloat16))

        def forward(self, tokens: Any, position: Any) -> Any:
            mask, model = (self.places <= position)[None], self.model
            x = model.tokens(tokens) + model.places(position)
            for layer, block in enumerate(model.blocks):
                cache = getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}")
                x = x + _attend_cached(lib, block, x, cache, position, mask)
                x = x + block.down(lib.nn.functional.gelu(block.up(block.ln_2(x)), approximate="tanh"))
            return lib.nn.functional.linear(model.ln(x[:, -1]), model.tokens.weight).argmax(-1, keepdim=True)

    return Decoding


def static_decoder(lib: Any, device: str, compile: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return what decodes one token more with GPT-2 small in bfloat16 and a compiled forward pass, and returns it.

    Keys and values of ``CACHED`` tokens have their memory from the beginning; after the last place comes the first.
    """
    rng = np.random.default_rng(0)
    decoding = compile(_decoding_class(lib)(_model(lib, device, rng), device))
    position = lib.tensor([0], device=device)
    tokens = lib.tensor(rng.integers(0, GPT_2.vocabulary, (1, 1)), device=device)

    def step() -> Any:
        with lib.no_grad():
            tokens.copy_(decoding(tokens, position))
            position.add_(1).remainder_(CACHED)
        return tokens

    return step
