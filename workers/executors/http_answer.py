"""What an answer becomes: the attempt's result, an excerpt for its error, and whether it fulfils a condition."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from kernel.httpsuccess import is_fulfilled
from kernel.masking import Echoes
from workers.executors.bounds import clean_text, fit_text, from_json
from workers.executors.http_body import BODY_MAX_BYTES, Body, read_body, result_of

CONDITION_MAX_BYTES = 262_144  # of an answer that a condition is about; no more than BODY_MAX_BYTES of it is kept
EXCERPT_MAX_BYTES = 1_000
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Answer:
    """An answer as it was read, and as it is kept."""

    body: Body
    result: dict[str, Any]


async def read_answer(response: aiohttp.ClientResponse, *, for_condition: bool, echoes: Echoes) -> Answer:
    """Read an answer within its bounds. All that can be wrong with a body is told by the result.

    What was sent in secret is masked in what is kept; a condition sees the answer as it came.
    """
    body = await read_body(response, CONDITION_MAX_BYTES if for_condition else BODY_MAX_BYTES)
    kept = replace(body, data=echoes.masked(body.data, cut=body.truncated))
    result = result_of(response, kept)
    result["headers"] = {name: echoes.masked_text(value) for name, value in result["headers"].items()}
    return Answer(body, result)


def unmet_condition(condition: Mapping[str, Any], answer: Answer) -> tuple[str, str] | None:
    """Class and message of what keeps the answer from being a success; None when it is one."""
    if answer.body.truncated:
        return "bad_json", f"The answer broke off or has more than {CONDITION_MAX_BYTES:,} bytes: it can't be judged."
    try:
        value = from_json(answer.body.data.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return "bad_json", "The answer is no JSON, so it can't be judged by success_if."
    if is_fulfilled(condition, value):
        return None
    return "condition_unmet", "The answer does not fulfil success_if."


def excerpt_of(answer: Answer) -> dict[str, str]:
    """The beginning of a text body, for the attempt's error: only the last attempt's whole result is kept."""
    if answer.result["base64"] or not answer.result["body"]:
        return {}
    text, _ = fit_text(clean_text(answer.result["body"][:EXCERPT_MAX_BYTES]), EXCERPT_MAX_BYTES)
    return {"excerpt": text}
