"""Reverse-mode differentiation over a graph of nodes; ``server.engine.backward`` is the entry."""
