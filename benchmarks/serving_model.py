"""The model of ``benchmarks.serving``: small, of GPT-2's shape; it tells the ten most likely next tokens."""

from __future__ import annotations

from typing import Any, Final

from .models import Setting, gpt_class

SERVED: Final = Setting("GPT d128, 4 layers, T32, fp32", 4, 128, 4, 32, 1, 512)
BEST: Final = 10


def next_tokens(lib: Any) -> Any:
    """Return the model of a library."""

    class NextTokens(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gpt = gpt_class(lib)(SERVED)

        def forward(self, tokens: Any) -> Any:
            logits = self.gpt(tokens, lib.arange(tokens.shape[1], device=tokens.device))
            best = lib.topk(logits[:, -1].log_softmax(-1), BEST)
            return {"logarithms": best.values, "tokens": best.indices}

    return NextTokens()
