"""Texts of anybody, for people to read. Pure."""

import json

LINES = "\n\r\t"


def printable(text: str, *, keep: str = "") -> str:
    """Without what turns the rest of a line round, hides in it or speaks to a terminal: JSON's escapes stand for it.

    `keep` are such characters that stay.
    """
    return "".join(one if one.isprintable() or one in keep else json.dumps(one)[1:-1] for one in text)
