"""The platform's housekeeping as PeriodicTasks. Whoever changes or disables them in the admin keeps that."""

from django.db import migrations

# name, task, crontab (minute, hour), seconds after which a slot is pointless, what it does
TASKS = (
    (
        "shardbeat: retention", "shardbeat.retention", ("*/10", "*"), 600,
        "Deletes finished executions, attempts and resolved dead letters older than the plan's retention days.",
    ),
    (
        "shardbeat: prune", "shardbeat.prune", ("23", "*"), 3_600,
        "Forgets old beat slots, dead dispatchers and workers, and answers kept for idempotency keys (72 h).",
    ),
    (
        "shardbeat: health", "shardbeat.health", ("*", "*"), 60,
        "Logs shards without live holder, late due entries, entries put aside, and clocks that are off.",
    ),
)  # fmt: skip


def create(apps, schema_editor):
    crontab = apps.get_model("django_celery_beat", "CrontabSchedule")
    periodic = apps.get_model("django_celery_beat", "PeriodicTask")
    for name, task, (minute, hour), expire_s, description in TASKS:
        fields = {
            "minute": minute, "hour": hour, "day_of_week": "*", "day_of_month": "*", "month_of_year": "*",
            "timezone": "UTC",
        }  # fmt: skip
        when = crontab.objects.filter(**fields).first() or crontab.objects.create(**fields)
        periodic.objects.get_or_create(
            name=name,
            defaults={"task": task, "crontab": when, "expire_seconds": expire_s, "description": description},
        )


def remove(apps, schema_editor):
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name__in=[one[0] for one in TASKS]).delete()


class Migration(migrations.Migration):
    dependencies = [("django_celery_beat", "0019_alter_periodictasks_options")]
    operations = [migrations.RunPython(create, remove)]
