"""What the webhooks of a tenant ask for, where the hot paths see it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_people"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="event_types",
            field=models.JSONField(
                blank=True,
                db_default=[],
                default=list,
                help_text="What its webhooks ask for, all together; kept by them.",
            ),
        ),
    ]
