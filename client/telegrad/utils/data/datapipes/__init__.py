"""Data pipes: streams and sequences of samples that are joined by calls, such as ``pipe.map(f).filter(g).batch(4)``.

``iter`` has the streams and ``map`` the sequences. Pipes that read files, fork or group are not there: generators of
Python do what they do.
"""

from __future__ import annotations
