"""What a container leaves behind, within its bounds: the last part of its output, its artefact, the run's result."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from kernel.masking import Echoes
from workers.executors.bounds import RESULT_MAX_BYTES, bounded_json, clean_text, from_json

TAIL_BYTES = 16_384  # of each stream
MARGIN_BYTES = 4_096  # kept before it, so that a secret at its beginning is seen whole
STREAM_MAX_JSON_BYTES = 8_192  # of each stream, in the result beside a large artefact
ERROR_TAIL_CHARS = 800
ARTEFACT_MAX_BYTES = RESULT_MAX_BYTES
_CUT = b'{"truncated":true,"size_bytes":'  # how bounded_json begins what it had to cut


@dataclass(slots=True)
class Tail:
    """The end of a stream, and how many bytes there were."""

    size: int = 0
    _kept: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._kept += data[-TAIL_BYTES - MARGIN_BYTES :]
        if len(self._kept) > 2 * TAIL_BYTES:
            del self._kept[: -TAIL_BYTES - MARGIN_BYTES]

    def text(self, echoes: Echoes) -> str:
        """The last TAIL_BYTES, without secrets and without what text can't hold."""
        return _text(bytes(self._kept), echoes, last_bytes=TAIL_BYTES)


@dataclass(slots=True)
class Logs:
    """The ends of both streams. Without a `stderr` the runtime does not tell them apart."""

    stdout: Tail = field(default_factory=Tail)
    stderr: Tail | None = field(default_factory=Tail)
    complete: bool = True  # False: the runtime broke off


def result_of(
    code: int | None, logs: Logs, artefact: bytes | None, *, echoes: Echoes, oom_killed: bool = False
) -> dict[str, Any]:
    """The run's result, of at most RESULT_MAX_BYTES as JSON and without the values of secrets.

    A large artefact leaves the streams STREAM_MAX_JSON_BYTES each; one that is too large becomes its beginning.
    """
    streams = {"stdout": logs.stdout} | ({"stderr": logs.stderr} if logs.stderr else {})
    texts = {name: tail.text(echoes) for name, tail in streams.items()}
    result: dict[str, Any] = {
        "exit_code": code,
        "output": None,
        "output_is": None,
        "truncated": False,
        **dict.fromkeys(texts, ""),
        **{f"{name}_bytes": tail.size for name, tail in streams.items()},
    }
    if not logs.complete:
        result["logs_complete"] = False
    if oom_killed:
        result["oom_killed"] = True
    room = RESULT_MAX_BYTES - 1_000
    if artefact:
        most = room - sum(_shared(text) for text in texts.values())
        kept, result["output_is"] = _artefact(artefact, echoes, most)
        result["truncated"] = kept.startswith(_CUT)
        result["output"] = from_json(kept)
        room -= len(kept)
    for left, (name, text) in enumerate(texts.items()):
        result[name] = fit_end(text, room // (len(texts) - left))
        room -= len(orjson.dumps(result[name]))
    return result


def steering(artefact: bytes | None) -> tuple[float | None, bool]:
    """What a failed container asks for: {"retry_after_s": 120} or {"no_retry": true} as its artefact."""
    try:
        asked = orjson.loads(artefact or b"null")
    except ValueError:
        return None, False
    if not isinstance(asked, dict):
        return None, False
    after_s = asked.get("retry_after_s")
    fits = isinstance(after_s, int | float) and not isinstance(after_s, bool) and after_s >= 0
    return (float(after_s) if fits and after_s is not None else None), asked.get("no_retry") is True


def last_words(logs: Logs, *, echoes: Echoes) -> str:
    """The end of what a failed container said, for its error."""
    tail = logs.stderr if logs.stderr and logs.stderr.size else logs.stdout
    return tail.text(echoes).strip()[-ERROR_TAIL_CHARS:]


def fit_end(text: str, max_bytes: int) -> str:
    """The end of `text` that fits `max_bytes` as a JSON string."""
    if max_bytes < 2:
        return ""
    size = len(orjson.dumps(text))
    while size > max_bytes:
        keep = min(len(text) - 1, len(text) * max_bytes // size)
        text = text[len(text) - keep :]
        size = len(orjson.dumps(text))
    return text


def _artefact(data: bytes, echoes: Echoes, max_bytes: int) -> tuple[bytes, str]:
    """The artefact as JSON of at most `max_bytes`, and what it was: "json", or "text" where it is none."""
    text = _text(data, echoes, cut=len(data) > ARTEFACT_MAX_BYTES)
    if len(data) <= ARTEFACT_MAX_BYTES:
        with suppress(ValueError):
            return bounded_json(from_json(text.encode()), max_bytes), "json"
    return bounded_json(text, max_bytes), "text"


def _shared(text: str) -> int:
    return min(len(orjson.dumps(text)), STREAM_MAX_JSON_BYTES)


def _text(data: bytes, echoes: Echoes, *, cut: bool = False, last_bytes: int | None = None) -> str:
    masked = echoes.masked(data, cut=cut)
    return clean_text((masked if last_bytes is None else masked[-last_bytes:]).decode(errors="replace"))
