"""Many in one request: what a bulk body must look like, and the answer with a result for each item."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from rest_framework.response import Response

from apps.api.endpoint import Endpoint
from apps.api.problems import document, problem_of
from apps.api.refusals import note_items
from apps.schedules.batches import MAX_ITEMS
from kernel.errors import BatchRefused, Faults, FieldError, InvalidInput, ShardbeatError
from kernel.jsonrules import pointer_to

FIELDS = ("items", "atomic")
Result = UUID | ShardbeatError


class Batch(NamedTuple):
    """The body of a bulk request. Items are read by whoever makes them."""

    items: list[Any]
    atomic: bool


class BulkEndpoint(Endpoint):
    """What the bulk views share."""

    def made(self, make: Callable[[Batch], Sequence[Result]], *, status: int) -> Response:
        """The answer to what `make` did; `status` is that of an item that was made."""
        try:
            found = make(read_batch(self.body))
        except BatchRefused as error:
            raise self._explained(error) from error
        items = [
            self._item(number, one) if isinstance(one, ShardbeatError) else _done(number, one, status)
            for number, one in enumerate(found)
        ]
        refused = [one for one in found if isinstance(one, ShardbeatError)]
        note_items(refused, self)
        return Response({"items": items, "succeeded": len(found) - len(refused), "refused": len(refused)})

    def _item(self, number: int, error: ShardbeatError) -> dict[str, Any]:
        known = problem_of(error)
        wait = {} if known.retry_after_s is None else {"retry_after_s": known.retry_after_s}  # an item has no header
        problem = document(
            status=known.status, code=known.code, detail=known.detail, request_id=self.inner.request_id,
            errors=known.errors, extra=known.extra | wait,
        )  # fmt: skip
        return {"index": number, "status": known.status, "id": None, "problem": problem}

    def _explained(self, error: BatchRefused) -> "ItemsRefused":
        items = [self._item(number, one) for number, one in error.refused.items()]
        faults = [
            FieldError(f"/items/{number}{one.pointer}", one.code, one.detail)
            for number, refusal in error.refused.items()
            for one in problem_of(refusal).errors
        ]
        return ItemsRefused(faults, error.detail, items=items, refused=len(items))


class ItemsRefused(InvalidInput):
    """A batch that was all or nothing: `items` holds those that were refused, `errors` the faults of all of them."""

    code = BatchRefused.code
    status = BatchRefused.status

    def __init__(self, errors: Sequence[FieldError], detail: str, **extra: Any) -> None:
        super().__init__(errors, detail)
        self.extra = extra


def read_batch(body: Any) -> Batch:
    """The members of a bulk body. InvalidInput; what an item holds is not looked at."""
    faults = Faults()
    if not isinstance(body, Mapping):
        faults.add("", "not_an_object", "The body must be a JSON object.")
        body = {}
    for name in [name for name in body if name not in FIELDS][:20]:
        faults.add(pointer_to("", name), "unknown_field", f"There is no such field. Known: {', '.join(FIELDS)}.")
    items, atomic = body.get("items"), body.get("atomic")
    if not isinstance(items, list):
        faults.add("/items", "required" if items is None else "type", "must be a list of what is to be made.")
    elif not 1 <= len(items) <= MAX_ITEMS:
        detail = f"has {len(items):,} items; from 1 to {MAX_ITEMS:,} are allowed."
        faults.add("/items", "too_many" if items else "required", detail)
    if atomic is not None and not isinstance(atomic, bool):
        faults.add("/atomic", "type", "must be true or false.")
    faults.raise_if_any()
    return Batch(items, atomic is True)


def _done(number: int, made: UUID, status: int) -> dict[str, Any]:
    return {"index": number, "status": status, "id": made, "problem": None}
