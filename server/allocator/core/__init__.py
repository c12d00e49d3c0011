"""The algorithm: blocks, pools, and the policy that serves a request. Needs no device."""

from __future__ import annotations
