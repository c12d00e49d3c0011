"""Runs Python as a person would, in a folder with a program of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(*arguments: object, folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with a server at ``url`` or a private one, not with one that the environment names."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    environment |= {"TELEGRAD_URL": url} if url else {}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
