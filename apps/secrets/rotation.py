"""Moving a tenant's secrets to new keys, a little at a time: it may be stopped anywhere and started again.

Two things can be rotated. A new key-encryption key: each data key is wrapped anew, values stay as they are. A new data
key: every value is encrypted anew. Rows are locked for milliseconds, and workers read either state.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from apps.audit.services import Actor, record
from apps.secrets import sealing
from apps.secrets.keyring import KeyUnknown, keyring
from apps.secrets.models import DataKey, Secret
from apps.secrets.sealing import SecretUnreadable
from apps.secrets.store import data_key, opened, place_of, value_of
from tenants import door
from tenants.models import Tenant

BATCH = 100


@dataclass(slots=True)
class Counts:
    """What was done for one tenant, or with a dry run would be. `unreadable` are names of secrets, or ids of keys."""

    rewrapped: int = 0
    new_data_keys: int = 0
    reencrypted: int = 0
    removed_data_keys: int = 0
    left: int = 0  # data keys under another key than the current one
    unreadable: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.rewrapped or self.new_data_keys or self.reencrypted or self.removed_data_keys)


def tenant_rotate(
    *, tenant: Tenant, actor: Actor, data_keys: bool, dry_run: bool, clock: Callable[[], datetime], batch: int = BATCH
) -> Counts:  # fmt: skip
    """Brings a tenant's keys up to date. With `data_keys` also gives it a new one and encrypts all values with it.

    A rotation of data keys that was interrupted is ended; then no further key is made.
    """
    counts = Counts()
    with door.inside(tenant):
        _rewrap(tenant, counts, dry_run)
        if data_keys:
            _retire(tenant, counts, dry_run, clock())
        while _reencrypt(tenant, counts, dry_run, clock(), batch):
            continue
        if not dry_run:
            _remove_unused(counts)
        current = keyring().current
        counts.left = DataKey.objects.exclude(kek_id=current).count() if not dry_run else len(set(counts.unreadable))
        if counts.changed and not dry_run:
            record(
                actor=actor, action="secret.rotate", object_type="secret", object_id="", now=clock(),
                tenant_id=tenant.pk, after=_shown(counts, current),
            )  # fmt: skip
    return counts


def _rewrap(tenant: Tenant, counts: Counts, dry_run: bool) -> None:
    keys = keyring()
    for pk in DataKey.objects.exclude(kek_id=keys.current).order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            row = DataKey.objects.select_for_update().filter(pk=pk).first()
            if row is None or row.kek_id == keys.current:
                continue
            try:
                key = opened(row, tenant.pk)
            except (KeyUnknown, SecretUnreadable):
                counts.unreadable.append(f"data key {pk} under {row.kek_id}")
                continue
            counts.rewrapped += 1
            if not dry_run:
                row.wrapped = sealing.wrap(keys.key(keys.current), key, tenant_id=tenant.pk, key_id=pk)
                row.kek_id = keys.current
                row.save(update_fields=["wrapped", "kek_id"])


def _retire(tenant: Tenant, counts: Counts, dry_run: bool, now: datetime) -> None:
    """Puts a new data key in the place of the one in use, unless values still wait for the last one."""
    with transaction.atomic():
        in_use = DataKey.objects.select_for_update().filter(retired_at=None).first()
        if in_use is None or Secret.objects.exclude(data_key=in_use).exists():
            return
        if not Secret.objects.filter(data_key=in_use).exists():
            return
        counts.new_data_keys += 1
        if not dry_run:
            in_use.retired_at = now
            in_use.save(update_fields=["retired_at"])
            data_key(tenant.pk, now=now)


def _reencrypt(tenant: Tenant, counts: Counts, dry_run: bool, now: datetime, batch: int) -> bool:
    """One batch of values under a data key that is not in use any more; whether there may be more."""
    done = counts.unreadable
    waiting = Secret.objects.exclude(data_key__retired_at=None).exclude(name__in=done).order_by("pk")
    if dry_run:
        every = counts.new_data_keys > 0
        counts.reencrypted = Secret.objects.count() if every else waiting.count()
        return False
    with transaction.atomic():
        rows = list(waiting.select_related("data_key").select_for_update(of=("self",), no_key=True)[:batch])
        if not rows:
            return False
        try:
            into, key = data_key(tenant.pk, now=now)
        except (KeyUnknown, SecretUnreadable):  # told already, by its id
            return False
        for row in rows:
            try:
                value = value_of(row, tenant_id=tenant.pk)
            except (KeyUnknown, SecretUnreadable):
                counts.unreadable.append(row.name)
                continue
            sealed = sealing.seal(key, value, place_of(row, tenant.pk))
            row.data_key, row.nonce, row.ciphertext = into, sealed.nonce, sealed.ciphertext
            row.save(update_fields=["data_key", "nonce", "ciphertext"])
            counts.reencrypted += 1
    return True


def _remove_unused(counts: Counts) -> None:
    for row in DataKey.objects.exclude(retired_at=None).filter(secrets=None).order_by("pk"):
        try:
            with transaction.atomic():
                row.delete()
        except IntegrityError:  # a value came in under it at the last moment; the next rotation finds it
            continue
        counts.removed_data_keys += 1


def _shown(counts: Counts, current: str) -> dict[str, Any]:
    return {
        "key": current,
        "rewrapped": counts.rewrapped,
        "new_data_keys": counts.new_data_keys,
        "reencrypted": counts.reencrypted,
        "unreadable": len(counts.unreadable),
    }
