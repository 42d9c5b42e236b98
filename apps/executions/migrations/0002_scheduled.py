"""An index for executions that wait for their time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("executions", "0001_initial")]
    operations = [
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                fields=["job_id", "id"], condition=models.Q(state="scheduled"), name="execution_scheduled"
            ),
        ),
    ]
