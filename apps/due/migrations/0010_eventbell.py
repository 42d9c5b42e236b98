"""Bells: which tenants have events to carry out."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("due", "0009_seal_lease"),
    ]

    operations = [
        migrations.CreateModel(
            name="EventBell",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant_id", models.IntegerField()),
                ("tx", models.BigIntegerField(help_text="Transaction that rang (xid8).")),
                ("available_at", models.DateTimeField(help_text="Not looked at before.")),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "tx"], name="event_bell_of_tenant"),
                    models.Index(fields=["available_at"], name="event_bell_rung"),
                ],
            },
        ),
    ]
