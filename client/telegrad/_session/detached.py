"""What ``detach`` returns: all that is needed to come back to a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DetachedSession:
    """A session that this program has left, and that goes on.

    ``connect(url, session=session, key=key)`` comes back to it, from any process, within ``lease`` seconds. ``key`` is
    a secret: who has it can use the session. ``kept`` are the names under which the session keeps tensors.
    """

    url: str
    session: str
    key: str
    lease: float
    kept: tuple[str, ...]

    def __repr__(self) -> str:
        kept = ", ".join(self.kept) or "nothing"
        return (
            f"detached from session {self.session}, which keeps {kept}; it ends after {self.lease:g} s, or come back:\n"
            f"tg.connect({self.url!r}, session={self.session!r}, key={self.key!r})"
        )
