"""The lease of the pool that delivers to tenants' brokers; a new installation has it from 0002."""

from django.db import migrations

from kernel.pools import POOLS


def create_leases(apps, schema_editor):
    lease = apps.get_model("due", "ShardLease")
    lease.objects.bulk_create(
        [lease(kind="release", shard=number, expires_at="2000-01-01T00:00:00Z") for number in range(len(POOLS))],
        ignore_conflicts=True,
    )


class Migration(migrations.Migration):
    dependencies = [("due", "0005_clock")]
    operations = [migrations.RunPython(create_leases, migrations.RunPython.noop)]
