"""Less memory at once: what a backward pass needs is computed again where that is cheap, and dropped meanwhile.

``again`` finds what can be computed again and where, ``draft`` changes the list of steps, and ``plan`` chooses.
``reuse`` finds results that lie where an operand lay that nobody needs any more. Values are those of the same
operations on the same operands.
"""
