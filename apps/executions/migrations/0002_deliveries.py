"""Executions that carry events out to webhooks, and how those that are alive are counted."""

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Left

TRIGGERS = ("schedule", "manual", "api", "backfill", "replay", "workflow", "catch_up", "webhook")


class Migration(migrations.Migration):
    dependencies = [("executions", "0001_initial")]

    operations = [
        migrations.RemoveConstraint(model_name="execution", name="execution_trigger_is_known"),
        # The rows that there are fulfil the former one, which allowed less: nothing has to be read.
        AddConstraintNotValid(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(trigger__in=TRIGGERS), name="execution_trigger_is_known"
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                fields=["job_id"],
                condition=models.Q(finished_at=None, trigger="webhook"),
                name="execution_delivery_alive",
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                Left("run_key", 32), condition=models.Q(trigger="webhook"), name="execution_delivery_of_event"
            ),
        ),
    ]
