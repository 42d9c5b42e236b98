"""The archive as a PeriodicTask. Whoever changes or disables it in the admin keeps that."""

from django.db import migrations

NAME = "shardbeat: archive"
DESCRIPTION = "Moves history older than the plan's retention days into archive files, where the plan has archive days."


def create(apps, schema_editor):
    crontab = apps.get_model("django_celery_beat", "CrontabSchedule")
    fields = {
        "minute": "5-59/10", "hour": "*", "day_of_week": "*", "day_of_month": "*", "month_of_year": "*",
        "timezone": "UTC",
    }  # fmt: skip
    when = crontab.objects.filter(**fields).first() or crontab.objects.create(**fields)
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(
        name=NAME,
        defaults={"task": "shardbeat.archive", "crontab": when, "expire_seconds": 600, "description": DESCRIPTION},
    )


def remove(apps, schema_editor):
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [("workers", "0001_housekeeping")]
    operations = [migrations.RunPython(create, remove)]
