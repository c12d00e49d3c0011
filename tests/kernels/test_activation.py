"""What importing Numba and telegrad in one program does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "program", ["import numba.cuda.dispatcher, telegrad", "import telegrad, numba.cuda.dispatcher"]
)
def test_a_numba_without_numba_cuda_is_left_alone(tmp_path: Path, program: str) -> None:
    package = tmp_path / "numba" / "cuda"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "dispatcher.py").write_text("class CUDADispatcher: pass\n")
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}; print(numba.__file__)"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.strip()) == (0, str(package.parent / "__init__.py")), ran.stderr
