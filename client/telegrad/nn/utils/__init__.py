"""Work on parameters and gradients, as in ``torch.nn.utils``.

What few programs use is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import clip_grad as clip_grad
from . import convert_parameters as convert_parameters
from . import rnn as rnn
from .clip_grad import clip_grad_norm as clip_grad_norm
from .clip_grad import clip_grad_norm_ as clip_grad_norm_
from .clip_grad import clip_grad_value_ as clip_grad_value_
from .clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from .clip_grad import get_total_norm as get_total_norm
from .convert_parameters import parameters_to_vector as parameters_to_vector
from .convert_parameters import vector_to_parameters as vector_to_parameters

# files that have the names of their functions; later imports of them leave the names to the functions
from .spectral_norm import remove_spectral_norm as remove_spectral_norm
from .spectral_norm import spectral_norm as spectral_norm
from .weight_norm import remove_weight_norm as remove_weight_norm
from .weight_norm import weight_norm as weight_norm

_LATER = {
    "fusion": "fusion", "init": "init",
    "memory_format": "memory_format", "parametrizations": "parametrizations", "parametrize": "parametrize",
    "prune": "prune", "stateless": "stateless",
    "convert_conv2d_weight_memory_format": "memory_format", "convert_conv3d_weight_memory_format": "memory_format",
    "fuse_conv_bn_eval": "fusion", "fuse_conv_bn_weights": "fusion", "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion", "skip_init": "init",
}  # fmt: skip
"""Names and the files that have them; a name that is a file's own stands for the file."""


def __getattr__(name: str) -> Any:
    file = _LATER.get(name)
    if file is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{file}")
    found = module if file == name else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
