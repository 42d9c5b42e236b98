"""Tables of the forecast. They are read and written by `forecast.py`, in SQL."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class ForecastChange(models.Model):
    """A due entry was made, changed or removed since its shard's forecast was made. Short-lived; see `forecast.py`.

    It holds the entry as it was before, without a `kind` when there was none.
    """

    key = models.UUIDField()
    shard = models.SmallIntegerField()
    tenant_id = models.IntegerField(null=True)
    kind = models.CharField(max_length=10, null=True)  # noqa: DJ001  as in the entry, or none
    spec = models.TextField(null=True)  # noqa: DJ001
    nominal_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    runs_done = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.key}"


class ForecastShard(models.Model):
    """How many runs the due entries of a shard will make: see `apps.schedules.forecasting`."""

    shard = models.SmallIntegerField(primary_key=True)
    starts_at = models.DateTimeField(help_text="A whole hour.")
    made_at = models.DateTimeField(help_text="When its due entries were read.")
    entries = models.IntegerField(help_text="Due entries that are in it.")
    runs = ArrayField(models.BigIntegerField(), help_text="By minute, then by hour.")

    def __str__(self) -> str:
        return f"{self.shard} from {self.starts_at:%Y-%m-%dT%H:%MZ}"


class Forecast(models.Model):
    """The forecast of all shards together, which is all that pages and answers read. One row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    starts_at = models.DateTimeField(help_text="A whole hour: of the first minute and of the first hour.")
    made_at = models.DateTimeField()
    oldest_at = models.DateTimeField(help_text="When the due entries of the shard that waits longest were read.")
    shards = models.SmallIntegerField(help_text="So many are in it; the others are not known yet.")
    entries = models.BigIntegerField(help_text="Due entries that are in it.")
    minutes = ArrayField(models.BigIntegerField(), help_text="Expected runs of each minute.")
    hours = ArrayField(models.BigIntegerField(), help_text="Expected runs of each hour.")
    peaks = models.JSONField(default=list, help_text="Of the fullest minutes, who is in them.")
    clock_changes = models.JSONField(default=list, help_text="Of the zones of its schedules, in its time.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="forecast_is_one_row")]

    def __str__(self) -> str:
        return f"from {self.starts_at:%Y-%m-%dT%H:%MZ}, made {self.made_at:%Y-%m-%dT%H:%M:%SZ}"
