from django.db import migrations, models

# Each resume and each change makes a version, so the current one has run without a break since it was made, up to what
# the rows say now. When earlier ones were paused nobody wrote down: those stay unknown.
KNOWN = """
UPDATE schedules_scheduleversion v SET from_at = v.created_at, until_at = e.at, ended_by = coalesce(e.why, '')
FROM schedules_schedule s JOIN schedules_job j ON j.id = s.job_id
LEFT JOIN LATERAL (
    SELECT o.at, o.why FROM (VALUES
        (s.deleted_at, 'deleted'),
        (CASE WHEN s.status = 'paused' THEN s.paused_at END, 'paused'),
        (j.paused_at, 'job_paused')) AS o(at, why)
    WHERE o.at IS NOT NULL ORDER BY o.at LIMIT 1) e ON true
WHERE v.schedule_id = s.id AND v.version = s.version
"""

# One that waits for the end of its pause has its version from then on.
WAITING = """
UPDATE schedules_scheduleversion v SET until_at = NULL, ended_by = ''
FROM schedules_schedule s
WHERE v.schedule_id = s.id AND v.version = s.version AND s.status = 'paused' AND s.resume_at = v.created_at
  AND v.ended_by = 'paused'
"""


class Migration(migrations.Migration):
    dependencies = [
        ("schedules", "0007_workflow_runs"),
    ]

    operations = [
        migrations.AddField(
            model_name="scheduleversion",
            name="from_at",
            field=models.DateTimeField(help_text="Occurrences later than this are its; null: not known.", null=True),
        ),
        migrations.AddField(
            model_name="scheduleversion",
            name="until_at",
            field=models.DateTimeField(
                help_text="And up to this, inclusive; null: until the next version's.", null=True
            ),
        ),
        migrations.AddField(
            model_name="scheduleversion",
            name="ended_by",
            field=models.CharField(
                blank=True, db_default="", help_text="What stopped it at `until_at`.", max_length=20
            ),
        ),
        migrations.RunSQL(KNOWN, migrations.RunSQL.noop),
        migrations.RunSQL(WAITING, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="scheduleversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_by", ""), ("until_at", None)),
                    models.Q(("until_at__isnull", False), models.Q(("ended_by", ""), _negated=True)),
                    _connector="OR",
                ),
                name="schedule_version_end_has_a_reason",
            ),
        ),
    ]
