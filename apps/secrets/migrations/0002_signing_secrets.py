"""Encrypts the signing secret that tenants_tenant held in plain text, and empties it there."""

from django.db import migrations
from django.utils import timezone

from kernel.ids import uuid7


def move(apps, schema_editor):
    connection = schema_editor.connection
    query = "SELECT id, signing_secret FROM public.tenants_tenant WHERE schema_name = %s AND signing_secret <> ''"
    with connection.cursor() as cursor:
        cursor.execute(query, [connection.schema_name])
        found = cursor.fetchone()
        if found is None:
            return
        from apps.secrets import sealing
        from apps.secrets.keyring import keyring

        tenant_id, text = found
        keys, now, key, key_id, secret_id = keyring(), timezone.now(), sealing.new_key(), uuid7(), uuid7()
        name = f"@sign.{secret_id.hex}"
        sealed = sealing.seal(key, text, sealing.Place(tenant_id, "signing", name, 1))
        wrapped = sealing.wrap(keys.key(keys.current), key, tenant_id=tenant_id, key_id=key_id)
        cursor.execute(
            "INSERT INTO secrets_datakey (id, wrapped, kek_id, created_at) VALUES (%s, %s, %s, %s)",
            [key_id, wrapped, keys.current, now],
        )
        cursor.execute(
            "INSERT INTO secrets_secret (id, name, purpose, description, data_key_id, nonce, ciphertext, version,"
            " revision, created_at, updated_at, value_set_at) VALUES (%s, %s, 'signing', '', %s, %s, %s, 1, 1, %s, %s, %s)",
            [secret_id, name, key_id, sealed.nonce, sealed.ciphertext, now, now, now],
        )
        cursor.execute(
            "UPDATE public.tenants_tenant SET signing_secret = '', signing_version = 1 WHERE id = %s", [tenant_id]
        )


class Migration(migrations.Migration):
    dependencies = [("secrets", "0001_initial")]

    operations = [migrations.RunPython(move, migrations.RunPython.noop, elidable=True)]
