"""Secrets as the services use them: the tenant's data key, encrypting a value into a row, reading one back."""

from datetime import datetime

from apps.secrets import sealing
from apps.secrets.keyring import keyring
from apps.secrets.models import DataKey, Secret
from apps.secrets.sealing import Place, Sealed


def data_key(tenant_id: int, *, now: datetime) -> tuple[DataKey, bytes]:
    """The tenant's data key in use, made when there is none. In the tenant's schema and a transaction. KeyUnknown."""
    keys = keyring()
    row = DataKey.objects.filter(retired_at=None).first()
    if row is None:
        key = sealing.new_key()
        made = DataKey(kek_id=keys.current, created_at=now)
        made.wrapped = sealing.wrap(keys.key(keys.current), key, tenant_id=tenant_id, key_id=made.pk)
        DataKey.objects.bulk_create([made], ignore_conflicts=True)  # another transaction may be making it, too
        row = DataKey.objects.filter(retired_at=None).get()
    return row, opened(row, tenant_id)


def opened(row: DataKey, tenant_id: int) -> bytes:
    """A data key's bytes. KeyUnknown, SecretUnreadable."""
    return sealing.unwrap(keyring().key(row.kek_id), bytes(row.wrapped), tenant_id=tenant_id, key_id=row.pk)


def put_value(secret: Secret, value: str, *, tenant_id: int, now: datetime) -> None:
    """Encrypts `value` into a row for its current version; the caller saves it."""
    row, key = data_key(tenant_id, now=now)
    sealed = sealing.seal(key, value, place_of(secret, tenant_id))
    secret.data_key, secret.nonce, secret.ciphertext = row, sealed.nonce, sealed.ciphertext
    secret.value_set_at = now


def value_of(secret: Secret, *, tenant_id: int) -> str:
    """The value of a row that was read with its data key. KeyUnknown, SecretUnreadable."""
    sealed = Sealed(bytes(secret.nonce), bytes(secret.ciphertext))
    return sealing.unseal(opened(secret.data_key, tenant_id), sealed, place_of(secret, tenant_id))


def place_of(secret: Secret, tenant_id: int) -> Place:
    return Place(tenant_id, str(secret.purpose), secret.name, secret.version)
