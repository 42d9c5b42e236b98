"""Who admits work hears of a changed limit at once: see `tenants.registry`.

Statements, not rows, are told of, and what is told is the same each time: one notice a transaction.
"""

from django.db import migrations

TOLD = """
CREATE FUNCTION tenants_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('shardbeat_tenants', '');
    RETURN NULL;
END $$;
CREATE TRIGGER tenant_changed AFTER UPDATE OF status, dispatch_paused, plan_id, worker_group ON tenants_tenant
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_changed();
CREATE TRIGGER plan_changed AFTER UPDATE ON tenants_plan
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_changed();
CREATE TRIGGER planpool_changed AFTER INSERT OR UPDATE OR DELETE ON tenants_planpool
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_changed();
"""
UNTOLD = """
DROP TRIGGER planpool_changed ON tenants_planpool;
DROP TRIGGER plan_changed ON tenants_plan;
DROP TRIGGER tenant_changed ON tenants_tenant;
DROP FUNCTION tenants_changed();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0010_group_names"),
    ]

    operations = [migrations.RunSQL(TOLD, UNTOLD)]
