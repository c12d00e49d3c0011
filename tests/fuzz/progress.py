"""How far a campaign of fuzzing has come, in a file, so that it can be continued."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec


class Finding(msgspec.Struct):
    """Something wrong, by the words that it is known by; ``text`` has the first occurrence in full."""

    title: str
    text: str
    count: int = 1


class Progress(msgspec.Struct):
    """``portions`` is the number of those that were handed out; a portion that was cut off is not repeated."""

    seed: int
    portions: int = 0
    frames: int = 0
    socket_frames: int = 0
    seconds: float = 0.0
    findings: list[Finding] = []

    @classmethod
    def of(cls, path: Path, seed: int) -> Progress:
        """What the file says; a new campaign where there is none."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls(seed)

    def save(self, path: Path) -> None:
        """Replace the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(self)))
        os.replace(new, path)

    def report(self, text: str) -> bool:
        """Note something wrong; whether it is new."""
        title = title_of(text)
        known = next((finding for finding in self.findings if finding.title == title), None)
        if known is not None:
            known.count += 1
            return False
        self.findings.append(Finding(title, text))
        return True


def title_of(text: str) -> str:
    """What tells one defect from another: the lines of code in a traceback, or else the first words."""
    places = [line.strip() for line in text.splitlines() if line.lstrip().startswith("File ")]
    if not places:
        return text.partition(": ")[2][:80]
    return f"{places[-1]} ({hashlib.sha256(''.join(places[-4:]).encode()).hexdigest()[:8]})"
