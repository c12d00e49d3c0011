"""``SummaryWriter``, which writes files that TensorBoard shows.

Files and their records are the package tensorboard's, as for PyTorch's writer; where only tensorboardX is installed, it
writes them. Each tensor that is written is read: one round trip.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("tensorboard") is not None:
    from .writer import FileWriter, SummaryWriter
elif find_spec("tensorboardX") is not None:
    from .other_package import FileWriter, SummaryWriter
else:
    raise ImportError("torch.utils.tensorboard needs the package tensorboard: pip install tensorboard")

__all__ = ["FileWriter", "SummaryWriter"]
