"""What submissions depend on: whether it is there, and who decides on it. In the transaction that makes the runs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from apps.workflows.definitions.definition import On
from apps.workflows.dependencies.dependents import Edge
from apps.workflows.dependencies.depending import dependencies_add, dependents_decide, parents_follow, parents_known
from kernel.errors import FieldError
from kernel.transitions import FINAL_STATES
from tenants import door
from tenants.models import Tenant
from tenants.registry import tenancy_of

Parents = Mapping[UUID, On]  # in the order of the submission


def known_parents(tenant: Tenant, wishes: Iterable[Parents]) -> set[UUID]:
    """The executions among these that there are. Without a lock: what is there stays there."""
    return parents_known(door.raw(), tenant.schema_name, {one for parents in wishes for one in parents})


def missing_parents(parents: Parents, known: Collection[UUID]) -> list[FieldError]:
    """A fault for each execution that is not there."""
    return [
        FieldError(f"/depends_on/{place}", "not_found", "There is no such execution.")
        for place, parent in enumerate(parents)
        if parent not in known
    ]


def depend(tenant: Tenant, made: Sequence[tuple[Parents, UUID]], now: datetime) -> None:
    """Notes what new executions, whose tickets are blocked, wait for; those whose parents have ended go on at once."""
    edges = [Edge(parent, child, on, None) for parents, child in made for parent, on in parents.items()]
    if not edges:
        return
    conn, tenancy = door.raw(), tenancy_of(tenant)
    states = parents_follow(conn, tenancy, {edge.parent for edge in edges})
    dependencies_add(conn, tenancy, edges)
    ended = {parent: state for parent, state in states.items() if state in FINAL_STATES}
    if ended:
        dependents_decide(conn, tenancy, ended, now)
