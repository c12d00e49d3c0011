"""Layers, as type checkers see them; written by docs/generate.py."""

from . import activation as activation
from . import adaptive as adaptive
from . import attention as attention
from . import batchnorm as batchnorm
from . import channelshuffle as channelshuffle
from . import container as container
from . import conv as conv
from . import distance as distance
from . import dropout as dropout
from . import flatten as flatten
from . import fold as fold
from . import instancenorm as instancenorm
from . import lazy as lazy
from . import linear as linear
from . import loss as loss
from . import module as module
from . import normalization as normalization
from . import padding as padding
from . import pixelshuffle as pixelshuffle
from . import pooling as pooling
from . import rnn as rnn
from . import sparse as sparse
from . import transformer as transformer
from . import upsampling as upsampling
from . import utils as utils
from .activation import *
from .adaptive import *
from .attention import *
from .batchnorm import *
from .channelshuffle import *
from .container import *
from .conv import *
from .distance import *
from .dropout import *
from .flatten import *
from .fold import *
from .instancenorm import *
from .lazy import *
from .linear import *
from .loss import *
from .module import *
from .normalization import *
from .padding import *
from .pixelshuffle import *
from .pooling import *
from .rnn import *
from .sparse import *
from .transformer import *
from .upsampling import *
from .utils import *

__all__: list[str] = []
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += attention.__all__
__all__ += batchnorm.__all__
__all__ += channelshuffle.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += instancenorm.__all__
__all__ += lazy.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += module.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pixelshuffle.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += sparse.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__
__all__ += utils.__all__
