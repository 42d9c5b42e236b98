"""The demo's tenants and logins. What can only be shown once (keys, the password) is kept in var/demo.json."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.contrib.auth.models import User

from apps.audit.services import Actor
from apps.console import roles
from apps.secrets.signing import signing_rotate
from tenants.keys import apikey_create, apikey_find
from tenants.models import Member, Plan, Tenant
from tenants.people import member_add, password_set
from tenants.provisioning import host_for, tenant_create
from tenants.work import database_now

TENANTS = ("acme", "globex")
LOGINS = ("admin", "viewer")  # of each tenant's console
ARCHIVE_DAYS = 365
REQUESTS_PER_MIN = 60_000  # far more than anybody sends; with a limit, answers say how they stand (RateLimit)
PLAN = {"archive_days": ARCHIVE_DAYS, "max_api_requests_per_min": REQUESTS_PER_MIN}
OPERATOR = "operator"  # a superuser
# The demo's receiver is on this machine. No other tenant may call loopback addresses.
LOOPBACK = ("127.0.0.0/8", "::1/128")


@dataclass(frozen=True)
class Remembered:
    """What an earlier run wrote."""

    password: str = ""
    operators: dict[str, str] = field(default_factory=dict)  # password by login
    keys: dict[str, str] = field(default_factory=dict)
    logins: dict[str, dict[str, str]] = field(default_factory=dict)  # password by role, by tenant

    @classmethod
    def read(cls, path: Path) -> Remembered:
        """Nothing, where there is no such file or it is not ours."""
        try:
            found = json.loads(path.read_text())
            keys = {tenant["slug"]: tenant["api_key"] for tenant in found["tenants"]}
            logins = {
                tenant["slug"]: {login["role"]: login["password"] for login in tenant.get("console", [])}
                for tenant in found["tenants"]
            }
            operators = {one["username"]: one["password"] for one in found.get("operators", [])}
            return cls(password=found["admin"]["password"], operators=operators, keys=keys, logins=logins)
        except (OSError, ValueError, KeyError, TypeError):
            return cls()


def operator(before: Remembered) -> dict[str, str]:
    """The operator's login: the remembered one where it still works, else with a new password."""
    user = User.objects.filter(username=OPERATOR).first() or User.objects.create_superuser(OPERATOR, password=None)
    return {"username": OPERATOR, "password": _password(user, before.password)}


def operators(before: Remembered, *, now: datetime) -> list[dict[str, str]]:
    """Logins of operators who may less, one for each role of the console."""
    return [_operator(role, before, now) for role in roles.ROLES]


def _operator(role: str, before: Remembered, now: datetime) -> dict[str, str]:
    name = f"demo-{role}"
    user = User.objects.filter(username=name).first()
    if user is None:
        user = User.objects.create_user(name, is_staff=True)
        roles.roles_give(login=name, roles=[role], actor=Actor(name="command:demo", role="admin"), now=now)
    return {"role": role, "username": name, "password": _password(user, before.operators.get(name, ""))}


def _password(user: User, remembered: str) -> str:
    """The remembered one where it still works, else a new one."""
    if remembered and user.check_password(remembered):
        return remembered
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    return password


def tenant(slug: str) -> Tenant:
    """The demo tenant, made where it is missing."""
    found: Tenant | None = Tenant.objects.select_related("plan").filter(slug=slug).first()
    if found is not None:
        return found
    plan, _ = Plan.objects.get_or_create(name="demo", defaults=PLAN)
    made = tenant_create(
        slug=slug,
        name=slug.capitalize(),
        plan=plan,
        host=host_for(slug),
        network=LOOPBACK,
    )
    signing_rotate(tenant=made, actor=Actor(name="command:demo", role="admin", tenant_id=made.pk), now=database_now())
    return made


def host(tenant: Tenant) -> str:
    """What a browser sends as Host, without a port."""
    return str(tenant.domains.filter(is_primary=True).values_list("domain", flat=True).get())


def api_key(tenant: Tenant, before: Remembered, *, now: datetime) -> str:
    """The remembered admin key where it is still valid, else a new one."""
    text = before.keys.get(tenant.slug, "")
    found = apikey_find(text, now=now)
    if found is not None and found.tenant_id == tenant.pk:
        return text
    return apikey_create(tenant=tenant, name="demo")[1]


def logins(tenant: Tenant, before: Remembered, *, now: datetime) -> list[dict[str, str]]:
    """Of the tenant's console, one a role: the remembered password where it still works, else a new one."""
    return [_login(tenant, role, before.logins.get(tenant.slug, {}).get(role, ""), now) for role in LOGINS]


def _login(tenant: Tenant, role: str, password: str, now: datetime) -> dict[str, str]:
    email = f"{role}@{tenant.slug}.example"
    actor = Actor(name="command:demo", role="admin", tenant_id=tenant.pk)
    member = Member.objects.select_related("user").filter(tenant=tenant, email=email).first()
    if member is None or not (password and member.user.check_password(password)):
        password = secrets.token_urlsafe(12)
        if member is None:
            member_add(tenant=tenant, actor=actor, email=email, role=role, name=role, password=password, now=now)
        else:
            password_set(tenant=tenant, actor=actor, member_uid=member.uid, password=password, now=now)
    return {"email": email, "password": password, "role": role}
