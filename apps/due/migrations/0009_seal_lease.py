"""The lease of whoever seals the audit trail."""

from django.db import migrations, models


def create_lease(apps, schema_editor):
    lease = apps.get_model("due", "ShardLease")
    lease.objects.bulk_create([lease(kind="seal", shard=0, expires_at="2000-01-01T00:00:00Z")], ignore_conflicts=True)


class Migration(migrations.Migration):
    dependencies = [("due", "0008_quotas")]
    operations = [
        migrations.AlterField(
            model_name="shardlease",
            name="kind",
            field=models.CharField(help_text="fire, release, reconcile or seal", max_length=10),
        ),
        migrations.RunPython(create_lease, migrations.RunPython.noop),
    ]
