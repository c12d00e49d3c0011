"""Recurrent layers on GPUs, by cuDNN."""
