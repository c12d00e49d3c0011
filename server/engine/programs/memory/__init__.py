"""Less memory at once: what a backward pass needs is computed again where that is cheap, and dropped meanwhile.

``lifetimes`` says what is held when, ``again`` what can be computed again and where, ``draft`` changes the list of
steps, and ``plan`` chooses. ``reuse`` finds results that lie where an operand lay that nobody needs any more;
``temporaries`` tells the most that is held at once. Values
are those of the same operations on the same operands.
"""
