"""Seals can't be changed either; the sealer's state; operators' names leave the rows written so far for their numbers.

The last is the only change that rows of the trail ever see, before they are sealed: a name that stays in plain text
could never be erased.
"""

from django.db import migrations

REFUSE = """
CREATE TRIGGER audit_seals_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_seal
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_state_stays BEFORE DELETE OR TRUNCATE ON audit_sealstate
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
"""
ALLOW = """
DROP TRIGGER audit_seals_append_only ON audit_seal;
DROP TRIGGER audit_state_stays ON audit_sealstate;
"""
NUMBERS = """
ALTER TABLE audit_auditevent DISABLE TRIGGER audit_append_only;
UPDATE audit_auditevent a SET subject = 'user:' || u.id, actor = 'user:' || u.id FROM auth_user u
WHERE a.actor = 'admin:' || u.username OR a.actor LIKE 'member:' || replace(u.username, '_', '\\_') || ' (%)';
ALTER TABLE audit_auditevent ENABLE TRIGGER audit_append_only;
"""
STATE = """
INSERT INTO audit_sealstate (id, step, at_txid, at_id, late, rescan_id, total, mac, wrapped, kek_id)
VALUES (1, 0, 0, 0, '{}', NULL, 0, '', NULL, '') ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_sealed"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [
        migrations.RunSQL(NUMBERS, migrations.RunSQL.noop),
        migrations.RunSQL(STATE, migrations.RunSQL.noop),
        migrations.RunSQL(REFUSE, ALLOW),
    ]
