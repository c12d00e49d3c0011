"""Files of weights, fetched once and kept in a folder of this machine; models of a folder of this machine.

Code of models is never fetched.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from telegrad_protocol.errors import ArgumentError

from ._programs.local_models import help as help
from ._programs.local_models import list as list
from ._programs.local_models import load as load
from ._programs.private.progress import tqdm as tqdm
from ._tensor.atomic_files import write_atomically
from .serialization import load as _load_file

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

_CHUNK_BYTES = 1 << 20
HASH_REGEX = re.compile(r"-([a-f0-9]+)\.")
"""The digits of a hash in the name of a file, such as ``resnet-0676ba61.pth``."""
_chosen_dir: builtins.list[str] = []


def get_dir() -> str:
    """Return the folder: what `set_dir` was given, else ``$TORCH_HOME/hub``, else ``~/.cache/torch/hub``."""
    if _chosen_dir:
        return _chosen_dir[-1]
    return os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.expanduser(os.environ.get("TORCH_HOME", cache))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose the folder."""
    _chosen_dir[:] = [os.path.expanduser(os.fspath(d))]


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetch a file. It appears complete or not at all; no progress is shown.

    Raises RuntimeError unless its SHA-256, in hexadecimal digits, begins with ``hash_prefix``, where that is given.
    """
    digest = hashlib.sha256()

    def write(path: str) -> None:
        with urlopen(Request(url, headers={"User-Agent": "telegrad"})) as source, open(path, "wb") as file:
            for chunk in _chunks(source):
                file.write(chunk)
                digest.update(chunk)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f"{url} has the SHA-256 {digest.hexdigest()}, which does not begin with {hash_prefix}")

    write_atomically(os.path.abspath(os.path.expanduser(dst)), write)


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
    file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """Return what a file of weights holds, fetched unless it is in the folder; ``weights_only`` changes nothing.

    The folder is ``model_dir``, else ``checkpoints`` in `get_dir`. With ``check_hash`` the file's name must have the
    form ``name-<digits>.ext``, and its SHA-256 must begin with those digits.
    """
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.path.expanduser(model_dir)
    os.makedirs(folder, exist_ok=True)
    name = os.path.basename(urlparse(url).path) if file_name is None else file_name
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f'Downloading: "{url}" to {path}')
        digits = HASH_REGEX.search(name) if check_hash else None
        if check_hash and digits is None:
            raise ArgumentError(f"load_state_dict_from_url: the name {name!r} has no digits of a hash to check")
        download_url_to_file(url, path, digits[1] if digits else None, progress)
    return _load_file(path, map_location)


load_url = load_state_dict_from_url
"""The name that ``torch.utils.model_zoo`` has for it."""
