from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Pressure",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("measured_at", models.DateTimeField()),
                ("every_s", models.FloatField(help_text="When the next measurement is to be expected.")),
                (
                    "live",
                    models.BigIntegerField(
                        help_text="Executions that are not finished, of all tenants, delayed ones too."
                    ),
                ),
                ("ended_per_s", models.FloatField(help_text="How many of them end in a second.")),
                (
                    "figures",
                    models.JSONField(default=dict, help_text="By pool and group: see apps.dispatch.pressure.gauging."),
                ),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="pressure_is_one_row")],
            },
        ),
    ]
