"""What this program runs on, for reports of defects: ``python -m telegrad.utils.collect_env``."""

from __future__ import annotations

import platform
import sys

import numpy

from telegrad import cuda
from telegrad._session.current import has_session
from telegrad.backends import cudnn

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """Return a text with versions of this machine, and the devices of the session's server if there is a session."""
    lines = [
        f"telegrad version: {sys.modules['telegrad'].__version__}",
        f"Python version: {sys.version.split()[0]} ({platform.architecture()[0]} runtime)",
        f"Python platform: {platform.platform()}",
        f"numpy version: {numpy.__version__}",
    ]
    if not has_session():
        return "\n".join([*lines, "Server: none is connected"])
    lines.append(f"Is CUDA available: {cuda.is_available()}")
    lines += [f"GPU {index}: {cuda.get_device_name(index)}" for index in range(cuda.device_count())]
    lines.append(f"cuDNN version: {cudnn.version()}")
    return "\n".join(lines)


def main() -> None:
    """Print the text."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
