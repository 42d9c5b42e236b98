"""PORT: what is refused, with which words."""

from __future__ import annotations

import socket

import pytest

from demo.__main__ import check_port, web_port
from embedded.process import ServiceError


def test_port_of_the_environment() -> None:
    assert web_port({}) == 8000
    assert web_port({"PORT": ""}) == 8000
    assert web_port({"PORT": "9001"}) == 9001


@pytest.mark.parametrize("text", ["http", "0", "65536", "-1", "80.0"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match=f"PORT={text} is no port"):
        web_port({"PORT": text})


def test_a_taken_port_is_refused_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} is in use; choose another: PORT="):
            check_port(port)
