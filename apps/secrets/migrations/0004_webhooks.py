"""Secrets that sign the deliveries of webhooks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("secrets", "0003_sealed"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="secret",
            name="secret_purpose_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="secret",
            name="secret_name_fits_its_purpose",
        ),
        migrations.AlterField(
            model_name="secret",
            name="purpose",
            field=models.CharField(
                choices=[
                    ("job", "named by jobs"),
                    ("signing", "signs the tenant's outgoing calls"),
                    ("sealed", "a credential that was written in a job itself"),
                    ("webhook", "signs the deliveries of a webhook"),
                ],
                default="job",
                max_length=7,
            ),
        ),
        migrations.AddConstraint(
            model_name="secret",
            constraint=models.CheckConstraint(
                condition=models.Q(("purpose__in", ["job", "signing", "sealed", "webhook"])),
                name="secret_purpose_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="secret",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("name__regex", "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"), ("purpose", "job")),
                    models.Q(("name__regex", "^@[a-z0-9.]+$"), ("purpose__in", ["signing", "sealed", "webhook"])),
                    _connector="OR",
                ),
                name="secret_name_fits_its_purpose",
            ),
        ),
    ]
