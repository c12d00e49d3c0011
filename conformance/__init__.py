"""How much of PyTorch there is: its operators against its own database, and its names and signatures.

Tools for developers; PyTorch must be installed. ``make opinfo`` and ``make surface`` run them.
"""
