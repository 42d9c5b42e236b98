"""An index more, made while work goes on."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("tickets", "0009_blocked"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="ticket",
            index=models.Index(
                condition=models.Q(("guarded", True), ("state__in", ["queued", "running"])),
                fields=["schedule_id"],
                name="ticket_serial_taken",
            ),
        ),
    ]
