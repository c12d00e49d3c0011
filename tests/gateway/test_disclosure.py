"""What callers are told of the server's own files."""

from __future__ import annotations

import pytest

from server.disclosure import traceback_for, without_folders


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dlopen: /opt/telegrad/lib/x.so: undefined symbol: f(int)", "dlopen: x.so: undefined symbol: f(int)"),
        ("+ g++ -I/usr/include/python3.11 -L/opt/lib64 -c a.cpp -o a.o", "+ g++ -Ipython3.11 -Llib64 -c a.cpp -o a.o"),
        ("a.cpp:3:5: error: expected ';' before '/' token", "a.cpp:3:5: error: expected ';' before '/' token"),
        ("In file included from /usr/include/c++/12/map:60,", "In file included from map:60,"),
        ("float32[2]/float32[3] and src/deep/file.h stay", "float32[2]/float32[3] and src/deep/file.h stay"),
        ("[Errno 13] Permission denied: '/srv/secret/key.pem'", "[Errno 13] Permission denied: 'key.pem'"),
    ],
)
def test_folders_are_cut_off_unless_debugging_is_on(monkeypatch: pytest.MonkeyPatch, text: str, told: str) -> None:
    assert without_folders(text) == told
    monkeypatch.setenv("TELEGRAD_DEBUG", "1")
    assert without_folders(text) == text


def test_a_traceback_is_told_with_debugging_alone_and_never_with_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        without_folders(None)  # type: ignore[arg-type]
    except TypeError as error:
        assert traceback_for(error) == ""
        monkeypatch.setenv("TELEGRAD_DEBUG", "yes")
        text = traceback_for(error)
    assert 'File "server/disclosure.py"' in text and 'File "/' not in text
