from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("schedules", "0006_workflows"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(condition=models.Q(("kind", "workflow")), fields=["id"], name="job_is_workflow"),
        ),
    ]
