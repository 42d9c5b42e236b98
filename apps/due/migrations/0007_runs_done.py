"""How many of a schedule's max_runs are done: kept with its due entry. Empty entries are counted when they fire next."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("due", "0006_release_lease")]

    operations = [
        migrations.AddField(
            model_name="dueentry",
            name="runs_done",
            field=models.IntegerField(
                help_text="Occurrences before nominal_at that count for max_runs; empty when not counted yet.",
                null=True,
            ),
        ),
    ]
