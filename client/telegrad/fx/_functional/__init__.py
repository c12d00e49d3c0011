"""Rewrites graphs of operators so that none writes into what it is given. Knows nothing of how they are traced."""
