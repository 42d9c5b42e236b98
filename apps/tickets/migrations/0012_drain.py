from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tickets", "0011_workflow_looks"),
    ]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="drain_wanted",
            field=models.BooleanField(db_default=False, default=False, help_text="Operators told it to stand back."),
        ),
    ]
