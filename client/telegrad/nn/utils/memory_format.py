"""The memory format of the weights of convolutions."""

from __future__ import annotations

from typing import Any, TypeVar

from telegrad._session.grad_mode import no_grad
from telegrad.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from telegrad.nn.modules.module import Module
from telegrad_protocol.memory_format import MemoryFormat

M = TypeVar("M", bound=Module)


def _converted(module: M, memory_format: MemoryFormat, kinds: tuple[type, ...]) -> M:
    with no_grad():
        convolutions: list[Any] = [part for part in module.modules() if isinstance(part, kinds)]
        for part in convolutions:
            part.weight.data = part.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: MemoryFormat) -> M:
    """Lay out the weights of all convolutions of images in a memory format."""
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: M, memory_format: MemoryFormat) -> M:
    """Lay out the weights of all convolutions of volumes in a memory format."""
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))
