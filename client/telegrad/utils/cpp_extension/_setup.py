"""Setup scripts: ``CppExtension``, ``CUDAExtension`` and ``BuildExtension``. Imported with setuptools alone.

What is built is a module in Python that has the extension's sources, headers and flags. Where it is imported, the
server of the program's session compiles them, or finds what it has compiled before. The setup script's own server
compiles them too, so that errors of the compiler are those of the build.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from ._loading import load_request, request
from ._sources import read_sources

_TEMPLATE = '''"""{name}: an extension in C++, which the server of the current session compiles.

Made by telegrad's BuildExtension of {files}.
"""

import sys

from telegrad.utils.cpp_extension._loading import load_request

sys.modules[__name__] = load_request({plain!r}, {asked!r})
'''


def CppExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Extension:
    """Return the description of an extension in C++, for ``setuptools.setup(ext_modules=...)``."""
    kwargs.setdefault("language", "c++")
    kwargs.pop("py_limited_api", None)  # what is built is not bound to a version of Python
    return Extension(name, [os.fspath(source) for source in sources], *args, **kwargs)


def CUDAExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Extension:
    """Return the description of an extension in C++ and CUDA."""
    if kwargs.pop("dlink", False) or kwargs.pop("dlink_libraries", None):
        raise ArgumentError("CUDAExtension: device code is not linked across sources; put it into one of them")
    made = CppExtension(name, sources, *args, **kwargs)
    made.telegrad_with_cuda = True
    return made


class BuildExtension(build_ext):  # type: ignore[misc]  # it is Any where setuptools is not installed
    """The command that builds extensions: a module for each, after the server has compiled it."""

    inplace: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for option in ("use_ninja", "no_python_abi_suffix"):
            kwargs.pop(option, None)
        super().__init__(*args, **kwargs)

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """Return a class that gets these options when it is made."""

        class WithOptions(cls):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **{**kwargs, **options})

        return WithOptions

    def get_ext_filename(self, fullname: str) -> str:
        """Return where the module of an extension lies, below the folder of its package."""
        return os.path.join(*fullname.split(".")) + ".py"

    def build_extensions(self) -> None:
        """Build all; no compiler of this machine is looked for."""
        for extension in self.extensions:
            self.build_extension(extension)

    def run(self) -> None:
        """Build what the setup script lists, and copy it beside the sources where that is asked for."""
        if not self.extensions:
            return
        inplace = bool(self.inplace)
        self.inplace = False
        self.build_extensions()
        self.inplace = inplace
        if inplace:
            self.copy_extensions_to_source()

    def build_extension(self, ext: Any) -> None:
        """Have the server compile an extension, and write the module that stands for it."""
        plain, asked = ext.name.rpartition(".")[2], _asked(ext)
        load_request(plain, asked, verbose=bool(self.verbose and self.verbose > 1))
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        files = ", ".join(ext.sources)
        path.write_text(_TEMPLATE.format(name=ext.name, files=files, plain=plain, asked=asked))


def _asked(ext: Any) -> list[Any]:
    """Return what the server is asked to build for an extension."""
    given = ext.extra_compile_args or []
    if isinstance(given, dict):
        unknown = set(given) - {"cxx", "nvcc"}
        if unknown:
            raise ArgumentTypeError(f"extra_compile_args: flags are those of 'cxx' and 'nvcc', not of {min(unknown)!r}")
        cflags, cuda_cflags = list(given.get("cxx", ())), list(given.get("nvcc", ()))
    else:
        cflags = cuda_cflags = list(given)
    defined = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in ext.define_macros or ()]
    defined += [f"-U{name}" for name in ext.undef_macros or ()]
    links = [f"-L{folder}" for folder in ext.library_dirs or ()]
    links += [*[f"-l{library}" for library in ext.libraries or ()], *(ext.extra_link_args or ())]
    paths = [os.path.abspath(folder) for folder in ext.include_dirs or ()]
    with_cuda = bool(getattr(ext, "telegrad_with_cuda", False))
    return request(read_sources(ext.sources), paths, [*defined, *cflags], [*defined, *cuda_cflags], links, with_cuda)
