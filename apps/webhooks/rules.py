"""What a webhook may look like, and which events fit it. Pure but for what the caller passes in."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.schedules.input_fields import MAX_ID_CHARS, Fields
from kernel.errors import Faults
from kernel.eventtypes import EVENT_TYPES, EVERYTHING
from kernel.httprules import MAX_URL_CHARS, TargetRefused, check_url
from kernel.masking import masked_url, restored_target
from kernel.templates import has_template

MEMBERS = ("url", "description", "types", "jobs", "schedules", "labels", "enabled")
MAX_DESCRIPTION_CHARS = 500
MAX_FILTERED = 50  # jobs, and schedules, of one webhook


@dataclass(frozen=True, slots=True)
class WebhookForm:
    """A valid webhook, as its owner writes it."""

    url: str
    description: str
    types: list[str]
    jobs: list[str]
    schedules: list[str]
    labels: dict[str, str] = field(default_factory=dict)
    enabled: bool = True


def read_webhook(
    data: Any, *, network: tuple[str, ...], also: Collection[str] = (), read_only: Collection[str] = ()
) -> WebhookForm:  # fmt: skip
    """Reads a body. InvalidInput with all faults. `also` are members that the caller reads itself."""
    fields = Fields(data, Faults())
    fields.only((*MEMBERS, *also), read_only=read_only)
    form = WebhookForm(
        url=_url(fields, network),
        description=fields.text("description", most=MAX_DESCRIPTION_CHARS) or "",
        types=_types(fields),
        jobs=_ids(fields, "jobs"),
        schedules=_ids(fields, "schedules"),
        labels=fields.labels(),
        enabled=_enabled(fields),
    )
    fields.faults.raise_if_any()
    return form


def as_given(webhook: Any) -> dict[str, Any]:
    """The webhook as its owner could have written it: the base of a merge patch, and a part of answers.

    Credentials in the query of its URL are masks; `url_restored` takes them back.
    """
    return {
        "url": masked_url(webhook.url),
        "description": webhook.description or None,
        "types": webhook.types,
        "jobs": webhook.jobs,
        "schedules": webhook.schedules,
        "labels": webhook.labels,
        "enabled": webhook.enabled,
    }


def url_restored(data: Any, known: str) -> Any:
    """A body with what its owner was shown as masks; `known` is the stored URL. InvalidInput for other masks."""
    if not isinstance(data, Mapping) or not isinstance(data.get("url"), str):
        return data
    faults = Faults()
    restored = restored_target({"url": data["url"]}, {"url": known}, faults.errors)
    faults.raise_if_any()
    return {**data, **restored}


def fits(
    webhook: Any, *, type_: str, job_id: UUID | None, schedule_id: UUID | None, labels: Mapping[str, str] | None
) -> bool:
    """Whether an event goes to a webhook. `labels` are those of what it is about; None while nobody asked for them."""
    return (
        (EVERYTHING in webhook.types or type_ in webhook.types)
        and (not webhook.jobs or (job_id is not None and str(job_id) in webhook.jobs))
        and (not webhook.schedules or (schedule_id is not None and str(schedule_id) in webhook.schedules))
        and (not webhook.labels or (labels is not None and webhook.labels.items() <= labels.items()))
    )


def _url(fields: Fields, network: tuple[str, ...]) -> str:
    """The same rules as for HTTP jobs; and nothing is filled in."""
    url = fields.text("url", most=MAX_URL_CHARS, required=True)
    if url is None:
        return ""
    if has_template(url):
        fields.faults.add("/url", "invalid", "The URL of a webhook is a fixed text; nothing is filled in.")
        return url
    try:
        check_url(url, network)
    except TargetRefused as refused:
        fields.faults.add("/url", refused.code, refused.detail)
    return url


def _types(fields: Fields) -> list[str]:
    value = fields.data.get("types")
    if value is None:
        fields.faults.add("/types", "required", f'This field is required: types of events, or ["{EVERYTHING}"].')
        return []
    if not isinstance(value, list) or not value:
        fields.faults.add("/types", "type", f'must be a list of types of events, or ["{EVERYTHING}"].')
        return []
    for number, one in enumerate(value[:MAX_FILTERED]):
        if not isinstance(one, str) or (one not in EVENT_TYPES and one != EVERYTHING):
            fields.faults.add(f"/types/{number}", "choice", f"must be one of {', '.join(EVENT_TYPES)}, or *.")
    if len(value) > MAX_FILTERED:
        fields.faults.add("/types", "too_many", f"has {len(value)} entries; {MAX_FILTERED} are allowed.")
    return sorted({one for one in value if isinstance(one, str)})


def _ids(fields: Fields, name: str) -> list[str]:
    value = fields.data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        fields.faults.add(f"/{name}", "type", "must be a list of ids.")
        return []
    if len(value) > MAX_FILTERED:
        fields.faults.add(f"/{name}", "too_many", f"has {len(value)} entries; {MAX_FILTERED} are allowed.")
        return []
    found = set()
    for number, one in enumerate(value):
        try:
            found.add(str(UUID(one) if isinstance(one, str) and len(one) <= MAX_ID_CHARS else UUID("")))
        except ValueError:
            fields.faults.add(f"/{name}/{number}", "type", "must be an id.")
    return sorted(found)


def _enabled(fields: Fields) -> bool:
    return True if fields.data.get("enabled") is None else fields.flag("enabled")
