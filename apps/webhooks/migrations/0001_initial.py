"""Subscriptions to events."""

from django.db import migrations, models

import kernel.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("id", models.UUIDField(default=kernel.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("url", models.CharField(max_length=4096)),
                ("description", models.CharField(blank=True, max_length=500)),
                ("types", models.JSONField(default=list, help_text='Types of events, or ["*"].')),
                ("jobs", models.JSONField(default=list, help_text="Only events of these jobs; empty: of any.")),
                (
                    "schedules",
                    models.JSONField(default=list, help_text="Only events of these schedules; empty: of any."),
                ),
                ("labels", models.JSONField(default=dict, help_text="Only events of what has all of these labels.")),
                ("revision", models.IntegerField(default=1, help_text="Grows with every change; the ETag.")),
                ("enabled", models.BooleanField(default=True)),
                ("disabled_at", models.DateTimeField(null=True)),
                ("disabled_reason", models.CharField(blank=True, max_length=500)),
                (
                    "failing_since",
                    models.DateTimeField(
                        help_text="No attempt has succeeded since; null while all is well.", null=True
                    ),
                ),
                ("failures", models.IntegerField(default=0, help_text="Failed attempts since then.")),
                ("last_error", models.CharField(blank=True, max_length=500)),
                ("last_success_at", models.DateTimeField(help_text="To the minute.", null=True)),
                ("secret", models.CharField(help_text="Name of what signs (apps.secrets).", max_length=64)),
                (
                    "former_secret",
                    models.CharField(blank=True, help_text="Signs as well until former_until.", max_length=64),
                ),
                ("former_until", models.DateTimeField(null=True)),
                ("cursor_tx", models.BigIntegerField(help_text="Events up to (cursor_tx, cursor_id) are carried out.")),
                ("cursor_id", models.UUIDField()),
                (
                    "generation",
                    models.IntegerField(
                        default=0, help_text="Grows when everything is sent once more; in the run keys."
                    ),
                ),
                (
                    "replay",
                    models.CharField(
                        blank=True, help_text="How events up to replay_until are sent once more.", max_length=7
                    ),
                ),
                ("replay_tx", models.BigIntegerField(null=True)),
                ("replay_id", models.UUIDField(null=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("deleted_at", models.DateTimeField(help_text="Kept while its deliveries are.", null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("replay__in", ["", "missing", "all"])), name="webhook_replay_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("replay", ""), ("replay_id", None), ("replay_tx", None)),
                            models.Q(
                                models.Q(("replay", ""), _negated=True),
                                ("replay_id__isnull", False),
                                ("replay_tx__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="webhook_replay_has_end",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("enabled", False), ("deleted_at", None), _connector="OR"),
                        name="webhook_deleted_is_disabled",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("former_secret", ""), ("former_until", None)),
                            models.Q(models.Q(("former_secret", ""), _negated=True), ("former_until__isnull", False)),
                            _connector="OR",
                        ),
                        name="webhook_former_secret_has_end",
                    ),
                ],
            },
        ),
    ]
