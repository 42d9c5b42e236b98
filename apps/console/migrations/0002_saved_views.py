import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Views that operators keep."""

    dependencies = [
        ("console", "0001_roles"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("url", models.CharField(help_text="Path and query of a page of operators.", max_length=2000)),
                ("shared", models.BooleanField(default=False, help_text="All operators see it.")),
                ("created_at", models.DateTimeField()),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("owner"),
                        django.db.models.functions.text.Lower("name"),
                        name="savedview_name_is_unique",
                    )
                ],
            },
        ),
    ]
