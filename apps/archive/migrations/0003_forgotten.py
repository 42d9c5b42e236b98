from django.db import migrations, models

# What was deleted until now was as old as the plan says; of a tenant that is younger nothing was.
KNOWN = """
INSERT INTO archive_forgotten (id, before)
SELECT 1, k.at FROM public.tenants_tenant t JOIN public.tenants_plan p ON p.id = t.plan_id
CROSS JOIN LATERAL (SELECT clock_timestamp() - p.retention_days * interval '1 day' AS at) k
WHERE t.schema_name = current_schema() AND t.created_at < k.at
"""


class Migration(migrations.Migration):
    dependencies = [
        ("archive", "0002_batches"),
    ]

    operations = [
        migrations.CreateModel(
            name="Forgotten",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("before", models.DateTimeField()),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="forgotten_is_one_row")],
            },
        ),
        migrations.RunSQL(KNOWN, migrations.RunSQL.noop),
    ]
