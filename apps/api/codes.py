"""Every code of a problem, once: its statuses, what it means, what to do.

From here come the answers of each operation in the OpenAPI document and the table of docs/reference/errors.md
(`manage.py api_reference` writes it). A new code needs its line here and its name in the `problems` of the operations
that answer with it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Code(NamedTuple):
    """`statuses` are those that it comes with; texts are Markdown."""

    statuses: tuple[int, ...]
    meaning: str
    remedy: str = ""


CODES: Mapping[str, Code] = {
    "invalid": Code((400,), "faults of the body or the query, in `errors`", "mend them"),
    "invalid_schedule": Code((400,), "the stored schedule can't be read any more", "write its trigger again"),
    "malformed_json": Code((400,), "the body is not JSON"),
    "repeated_member": Code((400,), "an object of the body has two members of one name"),
    "bad_request": Code((400,), "the request can't be understood"),
    "unknown_host": Code((400, 404), "this host is not served here (400), or no tenant has it (404)"),
    "not_authenticated": Code((401,), "no API key", "send `Authorization: Bearer sb_...`"),
    "invalid_key": Code((401,), "unknown, expired or revoked", "make a new key"),
    "role_too_low": Code((403,), "the key's role does not allow this; `needs` names the one that does"),
    "scope_missing": Code(
        (403,), "the key has scopes and none names this; `needs` is the action", "use another key"
    ),
    "csrf_failed": Code(
        (403,), "a change by a session without the form token of its host", "send `X-CSRFToken`, or use a key"
    ),
    "grant_too_high": Code((403,), "nobody grants or takes more than they may themselves", "ask an admin"),
    "key_of_another_tenant": Code((403,), "the host belongs to another tenant"),
    "tenant_not_active": Code((403,), "the tenant is suspended or being deleted"),
    "not_found": Code((404,), "missing, deleted, or not yours"),
    "method_not_allowed": Code((405,), "`Allow` names those that there are"),
    "not_acceptable": Code((406,), "answers are `application/json`"),
    "name_taken": Code((409,), "there is already one of this name"),
    "external_id_taken": Code((409,), "there is already one with this `external_id`"),
    "job_in_use": Code(
        (409,),
        "schedules use the job: `schedules` (the first 20), `schedule_count`; or workflows do: `workflows`,"
        " `workflow_count`",
    ),
    "workflow_in_use": Code(
        (409,),
        "schedules or other workflows use the workflow: `schedules` and `workflows` (the first 20 of each),"
        " `schedule_count`, `workflow_count`",
        "change or delete them first",
    ),
    "calendar_in_use": Code(
        (409,), "schedules use the calendar: `schedules` (the first 20)", "give them another one first"
    ),
    "secret_in_use": Code(
        (409,), "jobs name the secret: `jobs` (the first 20), `job_count`", "change or delete them first"
    ),
    "too_many_secrets": Code((409,), "a tenant has at most 1,000", "delete some"),
    "too_many_calendars": Code((409,), "a tenant has at most 1,000", "delete some"),
    "identity_provider_unusable": Code((502,), "the identity provider can't be reached or answers otherwise"),
    "id_token_refused": Code((403,), "the identity provider's answer is not for this login"),
    "member_exists": Code((409,), "somebody with this e-mail is a member already"),
    "member_without_email": Code((409,), "the member has no e-mail to sign in with", "invite them anew"),
    "last_admin": Code((409,), "the last admin stays", "make somebody else admin first"),
    "key_over": Code((409,), "the key is revoked or expired", "make a new one"),
    "already_rotated": Code((409,), "the key has a successor already: `successor`", "rotate that one"),
    "breaker_closed": Code((409,), "the circuit breaker is closed: calls are made"),
    "kind_is_fixed": Code((409,), "the kind of a job can't change", "make another job"),
    "schedule_completed": Code((409,), "there is nothing to pause"),
    "already_finished": Code((409,), "the execution can't be cancelled any more"),
    "not_finished": Code((409,), "a living execution is not rerun", "cancel it or wait"),
    "operation_not_open": Code((409,), "the operation has ended, or can't go this way from its state"),
    "already_started": Code((409,), "of an item: its run has begun, so an undo leaves it alone"),
    "changed_since": Code((409,), "of an item: it is not as the operation left it, so an undo leaves it alone"),
    "not_replayed": Code((409,), "of an item: its letter is not as the replay left it, so an undo leaves it alone"),
    "no_undo": Code((409,), "nothing takes this action back"),
    "nothing_to_undo": Code((409,), "the operation has done nothing yet that could be taken back"),
    "too_many_items": Code((409,), "the filter fits more than 1,000,000 things", "narrow it, or do it in parts"),
    "not_open": Code((409,), "the dead letter was replayed or resolved before"),
    "not_resolved": Code((409,), "the dead letter was not resolved, or a newer one of its execution is open"),
    "not_dead": Code(
        (409,), "the execution can't be replayed, nor its letter reopened: it is not dead", "resolve the letter"
    ),
    "replayed_too_often": Code(
        (409,), "it was replayed three times and died again each time; `replays` counts them", "see why, or say `force`"
    ),
    "job_deleted": Code((409,), "the execution can't be replayed: its job is deleted", "resolve the letter"),
    "execution_gone": Code((409,), "the execution can't be replayed: it is not kept any more", "resolve the letter"),
    "run_not_begun": Code((409,), "the run has not begun, so it has no steps", "wait, or cancel it"),
    "run_not_running": Code((409,), "only a run that goes on can be paused"),
    "run_not_paused": Code((409,), "the run is not paused"),
    "run_paused": Code((409,), "the run, or the one that it is a part of, is paused", "resume that first"),
    "run_cancelling": Code((409,), "the run is being cancelled", "wait until it has ended"),
    "run_compensated": Code((409,), "steps of the run were compensated", "start a new run"),
    "run_superseded": Code(
        (409,), "the step that the run was has been run once more", "do that to the newer run, or to the step"
    ),
    "nothing_to_retry": Code((409,), "no step of the run failed or was cancelled"),
    "undecodable": Code((409,), "the version of the workflow that the run keeps can't be read", "start a new run"),
    "archive_off": Code((409,), "there is no archive any more: `ARCHIVE_URL` is not set", "tell the operator"),
    "archive_unreachable": Code((503,), "the store of the archive does not answer", "try again"),
    "archive_damaged": Code((500,), "a file of the archive is missing, or not what was written", "tell the operator"),
    "held": Code((409,), "it is under a legal hold: nothing of it is deleted", "release the hold"),
    "erased": Code((409,), "the execution was erased: there is nothing left to run again"),
    "too_many_parts": Code((409,), "more than 10,000 executions go with it", "erase its parts"),
    "too_many_holds": Code((409,), "a tenant has at most 1,000 open legal holds", "release some"),
    "already_released": Code((409,), "the legal hold was released before"),
    "hold_of_operator": Code((403,), "an operator placed the legal hold, and only one can release it", "ask them"),
    "grace_over": Code((409,), "the tenant's data are being removed"),
    "step_not_failed": Code((409,), "the step, or the item, did not fail"),
    "step_not_finished": Code((409,), "the step, or one that follows from it, has not ended", "wait or cancel it"),
    "step_skipped": Code((409,), "a skipped step is not run once more", "force it"),
    "step_finished": Code((409,), "the step has ended"),
    "step_running": Code((409,), "the step is running", "cancel it first"),
    "step_not_waiting": Code((409,), "only steps that wait or were skipped can be forced"),
    "not_an_approval": Code((409,), "the step is no approval"),
    "not_awaiting_approval": Code((409,), "the approval does not wait for anybody: it has not started, or has ended"),
    "role_needed": Code((403,), "the approval asks for a higher role", "ask somebody who has it"),
    "webhook_disabled": Code((409,), "nothing is sent to this webhook", "enable it first"),
    "replay_in_progress": Code(
        (409,), "a replay of this webhook is under way", "wait until its `replaying` is null"
    ),
    "event_gone": Code(
        (410,),
        "the event to go on after is not kept any more, or never was",
        "begin with the oldest event; what you missed is in the lists",
    ),
    "lease_over": Code(
        (409,),
        "the attempt that the token names is over: it ended otherwise, or its lease or time-out ran out."
        " `attempt_state`, `execution_state` say how, when it is known",
        "stop working on it",
    ),
    "request_in_progress": Code((409,), "the same `Idempotency-Key` is being served", "wait for `Retry-After`"),
    "busy": Code((409,), "the object is being changed from many sides", "try again"),
    "length_required": Code(
        (411,), "a body without a length, and the server can't tell where it ends", "send `Content-Length`"
    ),
    "stale": Code(
        (412,), "changed since you read it, or not there (already there) as the condition says",
        "read again, change again",
    ),
    "body_too_large": Code((413,), "above 2 MiB, or more than 100,000 objects and lists"),
    "unsupported_media_type": Code(
        (415,), "bodies are `application/json` (PATCH also `application/merge-patch+json`)"
    ),
    "batch_refused": Code(
        (422,),
        "some items of an all-or-nothing batch can't be done, so nothing was: `items` holds a result for each of"
        " those, `refused` says how many",
        "mend or leave them out",
    ),
    "idempotency_key_reused": Code((422,), "the key belongs to another request", "take a new key"),
    "if_match_required": Code((428,), "a change must say what it has read", "send `If-Match`"),
    "quota_exceeded": Code(
        (429,), "a limit of the plan: `quota`, `limit`, `use`", "where waiting helps: wait for `Retry-After`"
    ),
    "rate_limited": Code(
        (429,),
        "too many requests in a minute: `policy` is `api-key` or `api-session` (the plan's limit of one key or person)"
        " or `failed-authentication` (no valid key, by address); `limit`, `use`, `window_s`",
        "wait for `Retry-After`; see [api.md](../api.md#requests-a-minute)",
    ),
    "internal_error": Code((500,), "a fault of ours", "tell us the `request_id`"),
    "overloaded": Code(
        (503,), "all tenants together have as much unfinished work as the platform takes", "wait for `Retry-After`"
    ),
    "secret_unreadable": Code((500,), "a stored secret can't be decrypted", "set its value again"),
    "secrets_key_unknown": Code((503,), "the operator's key for the secrets is missing"),
    "too_many_waiting": Code(
        (503,), "as many requests as may wait for work do so already",
        "wait for `Retry-After`, or ask with `wait_s` 0",
    ),
    "unavailable": Code((503,), "the database does not answer", "wait for `Retry-After`"),
}  # fmt: skip

# Any request may be answered so, whatever it asks for.
ALWAYS = (
    "invalid", "bad_request", "unknown_host", "not_authenticated", "invalid_key", "role_too_low", "scope_missing",
    "key_of_another_tenant", "tenant_not_active", "not_acceptable", "length_required", "body_too_large",
    "rate_limited", "internal_error", "unavailable",
)  # fmt: skip
OF_A_BODY = ("malformed_json", "repeated_member", "unsupported_media_type")
OF_A_PATH = ("not_found",)  # of paths that name a thing
OF_A_CHANGE = ("csrf_failed", "busy", "secrets_key_unknown")  # the trail encrypts who it was
OF_IF_MATCH = ("stale", "if_match_required")
OF_ARCHIVES = ("archive_off", "archive_unreachable", "archive_damaged")  # of reads that may come from one
OF_IDEMPOTENCY = ("request_in_progress", "idempotency_key_reused")

# Of no operation: what a path answers that has none for the method, what people meet who sign in, what items say.
ELSEWHERE = (
    "method_not_allowed", "identity_provider_unusable", "id_token_refused", "already_started", "changed_since",
    "not_replayed",
)  # fmt: skip


def by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    """The codes of each status, both in order."""
    found: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        for status in CODES[code].statuses:
            found.setdefault(status, []).append(code)
    return dict(sorted(found.items()))
