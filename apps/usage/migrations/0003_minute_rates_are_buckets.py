"""Rates of a minute became token buckets (apps.tickets.buckets): nothing counts minutes any more."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0002_pressure"),
    ]

    operations = [
        migrations.DeleteModel(
            name="MinuteRate",
        ),
    ]
