"""An index more, made while work goes on."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("tickets", "0012_drain"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="ticket",
            index=models.Index(
                condition=models.Q(("pool", "workflow")), fields=["execution_id"], name="ticket_of_workflow"
            ),
        ),
    ]
