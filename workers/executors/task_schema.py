"""Django's connection during a task: the tenant's schema, set before and put back after, whatever happens in between.

Django keeps a connection per thread, so tasks in several threads don't see each other's schema. Nothing is sent to the
database unless the task uses it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections, connection, reset_queries

from tenants.door import inside
from tenants.models import Tenant
from workers.executors.task import TaskContext


@contextmanager
def in_tenant_schema(context: TaskContext) -> Iterator[None]:
    """The ORM works in the schema of the run's tenant until the block ends."""
    tenant = Tenant(id=context.tenant_id, slug=context.tenant, schema_name=context.schema)
    close_old_connections()
    reset_queries()
    try:
        with inside(tenant):
            yield
    finally:
        if threading.current_thread() is threading.main_thread():
            close_old_connections()
        else:
            connection.close()  # its thread ends with the task
