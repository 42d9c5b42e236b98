"""The outbox of a tenant."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "tx",
                    models.BigIntegerField(help_text="Transaction that wrote it (xid8): the first part of the order."),
                ),
                ("type", models.CharField(max_length=40)),
                ("at", models.DateTimeField()),
                ("job_id", models.UUIDField(null=True)),
                ("schedule_id", models.UUIDField(null=True)),
                ("execution_id", models.UUIDField(null=True)),
                ("data", models.JSONField()),
            ],
            options={
                "indexes": [models.Index(fields=["tx", "id"], name="event_order")],
            },
        ),
    ]
