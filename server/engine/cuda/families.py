"""All families of CUDA kernels; importing this files them with their operations."""

from __future__ import annotations

from .attention import cudnn as cudnn_attention
from .attention import hopper as hopper_attention
from .attention import tiled as attention_tiles
from .conv import cudnn as cudnn_convolution
from .conv import pooling
from .conv import products as convolution_products
from .gemm import dot as gemm_dot
from .gemm import operations as gemm_operations
from .index import embedding, indexing, scatter, scatter_rows, scatter_sums
from .optim import adam as optim_adam
from .optim import foreach
from .optim import gradients as optim_gradients
from .optim import sgd as optim_sgd
from .pointwise import copying, fills, pointwise
from .random import draws as random_numbers
from .reduce import reduce, scan
from .rows import batch_norm as norm_channels
from .rows import group_norm as norm_groups
from .rows import layer_norm as norm
from .rows import losses, softmax
from .sort import search as sort_search
from .sort import sort

__all__ = [
    "attention_tiles",
    "convolution_products",
    "copying",
    "cudnn_attention",
    "cudnn_convolution",
    "embedding",
    "fills",
    "foreach",
    "gemm_dot",
    "gemm_operations",
    "hopper_attention",
    "indexing",
    "losses",
    "norm",
    "norm_channels",
    "norm_groups",
    "optim_adam",
    "optim_gradients",
    "optim_sgd",
    "pointwise",
    "pooling",
    "random_numbers",
    "reduce",
    "scan",
    "scatter",
    "scatter_rows",
    "scatter_sums",
    "softmax",
    "sort",
    "sort_search",
]
