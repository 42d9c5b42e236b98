"""Fence and release numbers come from one sequence each and are never reused."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tickets", "0001_initial")]
    operations = [
        # CACHE: a backend takes 50 numbers at a time. They stay unique; order between backends carries no meaning.
        migrations.RunSQL("CREATE SEQUENCE ticket_fence CACHE 50", "DROP SEQUENCE ticket_fence"),
        migrations.RunSQL("CREATE SEQUENCE ticket_release", "DROP SEQUENCE ticket_release"),
        migrations.RunSQL(
            "ALTER TABLE tickets_ticket SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02,"
            " autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_threshold = 1000)",
            migrations.RunSQL.noop,
        ),
    ]
