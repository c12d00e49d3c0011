"""Tests of the source tree itself: its imports, the size of its folders and files, and the words it uses."""
