"""Reverse-mode differentiation on a tape of nodes."""
