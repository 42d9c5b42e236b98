"""Webhooks, their deliveries, events."""

from tests.api.rows import Row
from tests.api.world import event

ROWS = {
    "webhooks_list": Row("viewer"),
    "webhooks_create": Row("admin", 201),
    "webhooks_read": Row("viewer"),
    "webhooks_patch": Row("admin"),
    "webhooks_replace": Row("admin"),
    "webhooks_delete": Row("admin", 204),
    "webhooks_rotate": Row("admin"),
    "webhooks_test": Row("operator", 202),
    "webhooks_replay": Row("operator", 202, body=lambda world: {"after": event(world)}),
    "webhook_deliveries_list": Row("viewer"),
    "webhook_deliveries_read": Row("viewer"),
    "webhook_deliveries_replay": Row("operator", 202),
    "events_list": Row("viewer"),
    "events_read": Row("viewer"),
}
