"""The lease of whoever looks after the runs of workflows; a new installation has it from 0002."""

from django.db import migrations


def create_lease(apps, schema_editor):
    lease = apps.get_model("due", "ShardLease")
    lease.objects.bulk_create(
        [lease(kind="release", shard=5, expires_at="2000-01-01T00:00:00Z")], ignore_conflicts=True
    )


class Migration(migrations.Migration):
    dependencies = [("due", "0011_flow")]
    operations = [migrations.RunPython(create_lease, migrations.RunPython.noop)]
