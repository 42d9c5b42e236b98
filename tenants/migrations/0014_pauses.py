from django.db import migrations, models

TOLD = """
CREATE TRIGGER dispatchpause_changed AFTER INSERT OR UPDATE OR DELETE ON tenants_dispatchpause
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_changed();
"""
UNTOLD = "DROP TRIGGER dispatchpause_changed ON tenants_dispatchpause;"


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0013_archive"),
    ]

    operations = [
        migrations.CreateModel(
            name="DispatchPause",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "pool",
                    models.CharField(blank=True, default="", help_text="Empty: all pools.", max_length=20),
                ),
                ("tenant_id", models.IntegerField(help_text="Empty: all tenants.", null=True)),
                ("reason", models.CharField(blank=True, default="", max_length=500)),
                ("paused_by", models.CharField(max_length=200)),
                ("paused_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("pool", "tenant_id"), name="dispatch_pause_is_one", nulls_distinct=False
                    )
                ],
            },
        ),
        migrations.RunSQL(TOLD, UNTOLD),
    ]
