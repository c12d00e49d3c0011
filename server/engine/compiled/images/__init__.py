"""Compiled loops over images: convolutions, and windows of which the largest element is wanted."""
