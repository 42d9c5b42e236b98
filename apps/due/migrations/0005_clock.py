from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("due", "0004_waiting"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClockMark",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                (
                    "seen_at",
                    models.DateTimeField(help_text="The latest time that reconcile has seen, to some seconds."),
                ),
                (
                    "ahead_until",
                    models.DateTimeField(
                        help_text=("The clock went back from here, and due entries have not all been looked at since."),
                        null=True,
                    ),
                ),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="clockmark_is_one_row")],
            },
        ),
        migrations.AddField(
            model_name="zonedata",
            name="rules",
            field=models.JSONField(help_text="Its files: {zones: {name: digest}, files: {digest: base64}}.", null=True),
        ),
        migrations.AddField(
            model_name="zonedata",
            name="newer",
            field=models.CharField(
                help_text="Another version that dispatchers run with already.", max_length=40, null=True
            ),
        ),
        migrations.AddField(
            model_name="zonedata",
            name="newer_since",
            field=models.DateTimeField(null=True),
        ),
    ]
