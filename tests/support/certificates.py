"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str, days: int = 2) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1, signed by itself; return it and its key, two PEM files named after ``name``."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        str(days),
        "-subj",
        f"/CN={name}",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
