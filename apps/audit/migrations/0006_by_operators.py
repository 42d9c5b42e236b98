"""An index more, made while others write: the trail may have many millions of rows."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("audit", "0005_readers")]

    operations = [
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(
                condition=models.Q(
                    ("subject__startswith", "user:"), ("actor__startswith", "command:"), _connector="OR"
                ),
                fields=["at", "id"],
                name="audit_by_operators",
            ),
        ),
    ]
