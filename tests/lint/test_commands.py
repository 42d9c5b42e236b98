"""What all commands of the project take: a form for programs, a rehearsal of what they change, a tenant by its slug."""

from __future__ import annotations

from pathlib import Path

from django.core.management import get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[2]
# These change nothing, so that there is nothing to rehearse; the dispatcher is no command that ends.
ONLY_LOOK = {
    "audit_verify", "dispatcher", "doctor", "explain", "forecast", "member_list", "pool_wanted", "preview", "simulate",
    "tenant_check", "tenant_list", "workflow_graph", "workflow_preview",
}  # fmt: skip
# These are about the installation, or about what belongs to no tenant.
NO_TENANT = {
    "api_reference", "demo_setup", "dispatcher", "doctor", "operator_role", "pool_wanted", "preview", "simulate",
    "tenant_check", "tenant_list", "tzdata_report", "worker_queues",
}  # fmt: skip


def test_commands_take_what_all_commands_take() -> None:
    folders = ("apps/*", "platform/*", "tenants", "workers")
    names = {path.stem for one in folders for path in ROOT.glob(f"{one}/management/commands/[a-z]*.py")}
    apps = get_commands()
    found = {}
    for name in names:
        parser = load_command_class(apps[name], name).create_parser("manage.py", name)
        found[name] = {option for action in parser._actions for option in action.option_strings}
    assert len(names) > 40
    assert {name for name, options in found.items() if "--format" not in options} == set()
    assert {name for name, options in found.items() if "--dry-run" not in options} == ONLY_LOOK
    assert {name for name, options in found.items() if "--tenant" not in options} == NO_TENANT
