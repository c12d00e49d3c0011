"""What ``cond`` returns has gradients of all that both of its functions name, whichever was called."""
