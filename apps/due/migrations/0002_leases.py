"""The lease rows, and storage settings for a table whose rows move all the time."""

from django.conf import settings
from django.db import migrations

from kernel.pools import POOLS


def create_leases(apps, schema_editor):
    lease = apps.get_model("due", "ShardLease")
    rows = [("fire", number) for number in range(settings.SHARDS)]
    rows += [("release", number) for number in range(len(POOLS))]
    rows += [("reconcile", 0)]
    lease.objects.bulk_create(
        [lease(kind=kind, shard=shard, expires_at="2000-01-01T00:00:00Z") for kind, shard in rows],
        ignore_conflicts=True,
    )


class Migration(migrations.Migration):
    dependencies = [("due", "0001_initial")]
    operations = [
        migrations.RunPython(create_leases, migrations.RunPython.noop),
        migrations.RunSQL(
            "ALTER TABLE due_dueentry SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02,"
            " autovacuum_vacuum_cost_delay = 0)",
            migrations.RunSQL.noop,
        ),
    ]
