from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("due", "0018_forecast"),
    ]

    operations = [
        migrations.AddField(
            model_name="dispatcher",
            name="drain_wanted",
            field=models.BooleanField(db_default=False, default=False, help_text="Operators told it to stand back."),
        ),
    ]
