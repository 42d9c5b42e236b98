import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import kernel.ids

ROLES = ["worker", "viewer", "editor", "operator", "admin"]
CHOICES = [(one, one.capitalize()) for one in ROLES]


def give_ids(apps, schema_editor):
    """Members that were there before get an id of their own each; an e-mail where their user has one that is theirs alone."""
    members = apps.get_model("tenants", "Member")
    taken = set()
    for member in members.objects.select_related("user").order_by("pk"):
        member.uid = kernel.ids.uuid7()
        email = (member.user.email or "").strip().lower()
        if email and email.isascii() and (member.tenant_id, email) not in taken and not member.user.is_staff:
            taken.add((member.tenant_id, email))
            member.email = email
        member.save(update_fields=["uid", "email"])


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_deletion"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(model_name="member", name="uid", field=models.UUIDField(null=True, editable=False)),
        migrations.AddField(
            model_name="member",
            name="email",
            field=models.CharField(
                blank=True, default="", max_length=254, help_text="In lower case; empty: can't sign in with a password."
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="member",
            name="name",
            field=models.CharField(blank=True, default="", max_length=100),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="member",
            name="revision",
            field=models.IntegerField(default=1, help_text="Grows with every change; the ETag."),
        ),
        migrations.AddField(
            model_name="member",
            name="session_epoch",
            field=models.IntegerField(default=1, help_text="Sessions that began under another number are over."),
        ),
        migrations.RunPython(give_ids, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="member",
            name="uid",
            field=models.UUIDField(
                default=kernel.ids.uuid7, editable=False, unique=True, help_text="Its id in the API."
            ),
        ),
        migrations.AddConstraint(
            model_name="member",
            constraint=models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=models.Q(("email", ""), _negated=True),
                name="member_email_is_unique_in_tenant",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="scopes",
            field=models.JSONField(blank=True, null=True, help_text="What of the role it may do; null: all of it."),
        ),
        migrations.AddField(
            model_name="apikey",
            name="created_by",
            field=models.CharField(blank=True, default="", max_length=200),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="apikey",
            name="replaces",
            field=models.UUIDField(editable=False, null=True, help_text="The key that this one was rotated from."),
        ),
        migrations.AddField(
            model_name="apikey",
            name="rotated_at",
            field=models.DateTimeField(editable=False, null=True, help_text="When a successor was made, once."),
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                (
                    "id",
                    models.UUIDField(default=kernel.ids.uuid7, editable=False, primary_key=True, serialize=False),
                ),
                ("email", models.CharField(max_length=254)),
                ("name", models.CharField(blank=True, max_length=100)),
                ("role", models.CharField(choices=CHOICES, max_length=10)),
                (
                    "digest",
                    models.CharField(max_length=64, unique=True, help_text="SHA-256 of the whole token, hexadecimal."),
                ),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=200)),
                ("expires_at", models.DateTimeField()),
                ("accepted_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "member",
                    models.ForeignKey(
                        help_text="Whose password is chosen anew.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="resets",
                        to="tenants.member",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="invitations", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("accepted_at", None), ("revoked_at", None)),
                        fields=("tenant", "email"),
                        name="invitation_one_open_per_email",
                    ),
                    models.CheckConstraint(condition=models.Q(("role__in", ROLES)), name="invitation_role_is_known"),
                ]
            },
        ),
    ]
