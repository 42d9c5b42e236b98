"""Credentials that are written in a job itself: encrypted like named secrets, as rows that only that job refers to.

A version of a job is immutable and may still run, so its rows stay with it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from apps.secrets.models import Secret
from apps.secrets.sealing import SecretUnreadable
from apps.secrets.store import put_value, value_of
from kernel.ids import uuid7
from kernel.masking import NAMED_TEXTS, credential_span, is_credential_name
from kernel.secretrules import is_internal, is_reference, secret_names
from kernel.templates import has_template


def kept_apart(target: Mapping[str, Any], *, known: Mapping[str, Any], tenant_id: int, now: datetime) -> dict[str, Any]:
    """The target with references instead of credentials. In the tenant's schema, in a transaction.

    A credential that `known`, the target until now, has in the same place keeps its row, so that what is written again
    unchanged is no change.
    """
    keeper = _Keeper(known, tenant_id, now)
    kept = dict(target)
    url = target.get("url")
    span = credential_span(url) if isinstance(url, str) and not has_template(url) else None
    if isinstance(url, str) and span is not None:
        reference = keeper.reference(url[span[0] : span[1]], known.get("url"))
        kept["url"] = {**reference, "prefix": url[: span[0]], "suffix": url[span[1] :]}
    for member in NAMED_TEXTS:
        texts, before = target.get(member), known.get(member)
        if isinstance(texts, Mapping):
            at = before if isinstance(before, Mapping) else {}
            kept[member] = {
                name: keeper.reference(value, at.get(name)) if _is_credential(name, value) else value
                for name, value in texts.items()
            }
    return kept


class _Keeper:
    def __init__(self, known: Mapping[str, Any], tenant_id: int, now: datetime) -> None:
        self._tenant_id, self._now = tenant_id, now
        names = [name for name in secret_names(known) if is_internal(name)]
        rows = Secret.objects.select_related("data_key").filter(name__in=names) if names else ()
        self._rows = {row.name: row for row in rows}

    def reference(self, value: str, before: Any) -> dict[str, Any]:
        """A reference to a row with this value: the one that is there, or a new one."""
        name = before["secret"] if is_reference(before) else ""
        if name in self._rows and self._value(self._rows[name]) == value:
            return {"secret": name}
        made = Secret(purpose=Secret.Purpose.SEALED, created_at=self._now, updated_at=self._now)
        made.pk = uuid7()
        made.name = f"@job.{made.pk.hex}"
        put_value(made, value, tenant_id=self._tenant_id, now=self._now)
        made.save(force_insert=True)
        return {"secret": made.name}

    def _value(self, row: Secret) -> str | None:
        try:
            return value_of(row, tenant_id=self._tenant_id)
        except SecretUnreadable:
            return None


def _is_credential(name: Any, value: Any) -> bool:
    """Templates are no credentials: they are filled in from what the run is given."""
    return isinstance(value, str) and bool(value) and is_credential_name(str(name)) and not has_template(value)
