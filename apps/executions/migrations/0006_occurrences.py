"""Made while others write: an installation may have millions of executions of one tenant."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("executions", "0005_workflows"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("trigger__in", ["backfill", "replay"])),
                fields=["schedule_id", "nominal_at"],
                name="execution_of_occurrence_again",
            ),
        ),
    ]
