from django.db import migrations, models


class Migration(migrations.Migration):
    """The permissions of the roles. The groups are made after every migration (apps.console.roles)."""

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Level",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ],
            options={
                "permissions": (
                    ("view", "May look at the console's pages"),
                    ("respond", "May retry, cancel, and pause one tenant"),
                    ("operate", "May do it in bulk, run backfills and change quotas"),
                    ("platform", "May move leases, drain machines and pause all"),
                    ("audit", "May export the audit trail and verify its chains"),
                ),
                "managed": False,
                "default_permissions": (),
            },
        ),
    ]
