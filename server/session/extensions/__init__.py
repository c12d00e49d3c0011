"""A session's extensions: building and loading them, calls of their functions, and how values travel to these."""
