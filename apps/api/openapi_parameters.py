"""What parameters mean that are the same everywhere: operations need not say it again."""

from collections.abc import Mapping
from typing import Any

TEXTS: Mapping[str, str] = {
    "job": "id of the job",
    "schedule": "id of the schedule",
    "workflow": "id of the workflow",
    "execution": "id of the execution",
    "step": "name of the step",
    "state": "one or several states, with commas between them",
    "status": "one or several, with commas between them",
    "kind": "one or several kinds, with commas between them",
    "trigger": "what made the run; one or several, with commas between them",
    "created_after": "made later than this; RFC 3339, exclusive",
    "created_before": "made earlier than this; RFC 3339, exclusive",
    "external_id": "your own id, all of it",
    "fingerprint": "failures of one cause have the same",
    "run_key": "of an execution, all of it",
    "replay_of": "id of the execution that was run again",
    "token": "names one attempt",
    "limit": "how many at most",
    "name": "its name",
    "version": "number of the version",
    "worker": "id of the worker that ran it",
    "error_class": "class of the error, all of it",
}
PATH_SUFFIX = "_id"


def describe_parameters(found: dict[str, Any]) -> None:
    """Gives all parameters of a document a description that have none."""
    for path in found["paths"].values():
        for one in path.values():
            for parameter in one.get("parameters", ()):
                if not parameter.get("description"):
                    text = _text(parameter["name"], parameter["in"])
                    if text:
                        parameter["description"] = text


def _text(name: str, where: str) -> str:
    if where == "path" and name.endswith(PATH_SUFFIX):
        return f"id of the {name.removesuffix(PATH_SUFFIX).replace('_', ' ')}"
    return TEXTS.get(name, "")
