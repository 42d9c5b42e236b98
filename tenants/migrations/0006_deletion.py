"""Deletion of tenants: when, the function that drops a schema for the application's role, and the guard.

Tenants that are marked already get a week from now.
"""

from django.db import migrations, models
from django.db.models import Q

MARKED = "UPDATE tenants_tenant SET delete_after = clock_timestamp() + interval '7 days' WHERE status = 'deleting'"

CREATE = r"""
CREATE FUNCTION tenants_schema_drop(which bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text;
BEGIN
    SELECT schema_name INTO found FROM public.tenants_tenant
    WHERE id = which AND status = 'deleting' AND delete_after <= clock_timestamp() FOR UPDATE;
    IF found IS NULL OR found !~ '^t_[a-z0-9_]+$' THEN
        RAISE EXCEPTION 'no tenant % whose grace is over', which USING ERRCODE = 'restrict_violation';
    END IF;
    EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', found);
    RETURN true;
END $$;

CREATE FUNCTION tenants_refuse_delete() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = OLD.schema_name) THEN
        RAISE EXCEPTION 'tenant % still has its schema: delete it with tenant_delete', OLD.slug
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER tenants_delete_guard BEFORE DELETE ON tenants_tenant
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_delete();
CREATE FUNCTION tenants_refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'tenants are deleted one by one with tenant_delete' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER tenants_truncate_guard BEFORE TRUNCATE ON tenants_tenant
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_refuse_truncate();
"""
DROP = """
DROP TRIGGER tenants_truncate_guard ON tenants_tenant; DROP FUNCTION tenants_refuse_truncate();
DROP TRIGGER tenants_delete_guard ON tenants_tenant; DROP FUNCTION tenants_refuse_delete();
DROP FUNCTION tenants_schema_drop(bigint);
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_quotas")]
    operations = [
        migrations.AddField(
            model_name="tenant",
            name="delete_after",
            field=models.DateTimeField(blank=True, help_text="Then its data are removed; until then undo.", null=True),
        ),
        migrations.AddField(
            model_name="tenant",
            name="delete_note",
            field=models.CharField(
                blank=True, help_text="Why the last step of its deletion failed.", max_length=300, default=""
            ),
            preserve_default=False,
        ),
        migrations.RunSQL(MARKED, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=Q(
                    Q(("delete_after__isnull", False), ("status", "deleting")),
                    Q(Q(("status", "deleting"), _negated=True), ("delete_after", None)),
                    _connector="OR",
                ),
                name="tenant_is_deleted_after_a_grace",
            ),
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
