"""The layouts of tensors in memory. Telegrad has one of them, elements at strides; who asks for another is refused."""

from __future__ import annotations

from typing import Final

from telegrad_protocol.shown_name import shown_name


class Layout:
    """How a tensor's elements lie in memory; every layout is one object, compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return shown_name(self.name)

    def __reduce__(self) -> str:
        """Pickle as the name that the layout has in this module, so that copies are the same object."""
        return self.name.removeprefix("_")


strided: Final = Layout("strided")
sparse_coo: Final = Layout("sparse_coo")
sparse_csr: Final = Layout("sparse_csr")
sparse_csc: Final = Layout("sparse_csc")
sparse_bsr: Final = Layout("sparse_bsr")
sparse_bsc: Final = Layout("sparse_bsc")
jagged: Final = Layout("jagged")
mkldnn: Final = Layout("_mkldnn")
"""The layout of PyTorch's tensors for oneDNN, of which there are none here; programs compare layouts with it."""
BY_NAME: Final = {
    layout.name: layout for layout in (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged)
}
