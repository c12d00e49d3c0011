"""Tables of the operators of PyTorch's library that are not the functions which users know under the same name."""
