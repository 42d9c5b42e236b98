"""Indexes for whoever looks for an object's rows, or for those of a time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audit", "0004_chain")]
    operations = [
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["object_id", "id"], name="audit_by_object"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["tenant_id", "at"], name="audit_by_time"),
        ),
    ]
