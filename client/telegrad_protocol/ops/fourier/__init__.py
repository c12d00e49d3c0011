"""Contracts of Fourier transforms, of those of short times, and of the windows that these multiply by."""
