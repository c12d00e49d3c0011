"""Discrete Fourier transforms on GPUs, by cuFFT."""
