"""What a container job may say, and what the operator allows to whom."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.containerrules import ContainerRules, read_target, target_faults
from kernel.errors import InvalidInput

RULES = ContainerRules(
    runtime="docker",
    images=("busybox", "registry.test:5000/team/*", "acme=registry.test:5000/acme/*"),
    networks=("acme=egress",),
    max_cpu=2, max_memory_mb=256, max_pids=100, max_scratch_mb=32,
)  # fmt: skip


def faults(change: dict[str, Any], rules: ContainerRules = RULES, tenant: str = "acme") -> dict[str, str]:
    target = {"image": "busybox", "command": ["true"], **change}
    return {fault.pointer: fault.code for fault in target_faults(target, rules, tenant=tenant, base="/target")}


def test_defaults_keep_within_the_operators_limits() -> None:
    tight = ContainerRules(runtime="docker", images=("*",), max_cpu=0.1, max_memory_mb=32, max_pids=8, max_scratch_mb=0)
    read = read_target({"image": "busybox"}, tight, tenant="acme")
    assert (read.cpu, read.memory_mb, read.pids, read.scratch_mb) == (0.1, 32, 8, 0)
    assert (read.network, read.uid, read.gid, read.payload_as, read.command) == ("none", 65534, 65534, "file", ())
    assert read.exit_codes.success == {0}


GOOD: list[dict[str, Any]] = [
    {"image": "registry.test:5000/team/etl/load:1.2"},
    {"image": "registry.test:5000/acme/app@sha256:" + "0" * 64},
    {"environment": {"A": "b", "TOKEN": {"secret": "TOKEN"}, "AUTH": {"secret": "TOKEN", "prefix": "Bearer "}}},
    {"environment": {"EMPTY": ""}, "args": ["", "--x", "ü"]},
    {"cpu": 2, "memory_mb": 256, "pids": 100, "scratch_mb": 0},
    {"network": "egress", "working_dir": "/srv/app", "user": "1000:1001", "payload_as": "env"},
    {"exit_codes": {"success": [0, 3], "retry_on": [75], "never_on": [64, 65]}},
    {"exit_codes": {"success": [5]}},
]


@pytest.mark.parametrize("change", GOOD, ids=str)
def test_what_is_right_is_taken(change: dict[str, Any]) -> None:
    assert faults(change) == {}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"image": None}, "/image", "required"),
    ({"image": "Busybox"}, "/image", "invalid"),
    ({"image": "busybox "}, "/image", "invalid"),
    ({"image": "registry.test:5000/team/../acme/x"}, "/image", "invalid"),
    ({"image": "busybox:1"}, "/image", "image_not_allowed"),
    ({"image": "evil.test/registry.test:5000/team/x"}, "/image", "invalid"),
    ({"image": ["busybox"]}, "/image", "invalid"),
    ({"command": "true"}, "/command", "type"),
    ({"command": []}, "/command", "type"),
    ({"command": [""]}, "/command", "type"),
    ({"args": ["a\x00b"]}, "/args", "type"),
    ({"args": ["x"] * 201}, "/args", "type"),
    ({"args": ["x" * 30_000] * 5}, "/args", "too_long"),
    ({"environment": []}, "/environment", "type"),
    ({"environment": {"A B": "x"}}, "/environment/A B", "invalid_name"),
    ({"environment": {"A": 1}}, "/environment/A", "type"),
    ({"environment": {"A": {"secret": "no name"}}}, "/environment/A/secret", "invalid_name"),
    ({"environment": {"A": "x" * 40_000}}, "/environment/A", "type"),
    ({"environment": {"shardbeat_X": "x"}}, "/environment/shardbeat_X", "reserved"),
    ({"payload_as": "stdin"}, "/payload_as", "choice"),
    ({"cpu": 2.1}, "/cpu", "range"),
    ({"cpu": True}, "/cpu", "range"),
    ({"cpu": float("nan")}, "/cpu", "range"),
    ({"memory_mb": 257}, "/memory_mb", "range"),
    ({"memory_mb": 1.5}, "/memory_mb", "range"),
    ({"memory_mb": 4}, "/memory_mb", "range"),
    ({"pids": 0}, "/pids", "range"),
    ({"scratch_mb": 33}, "/scratch_mb", "range"),
    ({"network": "host"}, "/network", "network_not_allowed"),
    ({"network": 5}, "/network", "network_not_allowed"),
    ({"working_dir": "srv"}, "/working_dir", "invalid"),
    ({"working_dir": "/srv/../.."}, "/working_dir", "invalid"),
    ({"user": "root"}, "/user", "invalid"),
    ({"user": "0"}, "/user", "root_not_allowed"),
    ({"user": "1000:0"}, "/user", "root_not_allowed"),
    ({"user": "99999999999"}, "/user", "invalid"),
    ({"exit_codes": [0]}, "/exit_codes", "type"),
    ({"exit_codes": {"success": []}}, "/exit_codes/success", "type"),
    ({"exit_codes": {"retry_on": [256]}}, "/exit_codes/retry_on", "type"),
    ({"exit_codes": {"never_on": [0]}}, "/exit_codes", "contradiction"),
    ({"exit_codes": {"retry": [1]}}, "/exit_codes/retry", "unknown_field"),
    ({"privileged": True}, "/privileged", "unknown_field"),
    ({"volumes": ["/:/host"]}, "/volumes", "unknown_field"),
]


@pytest.mark.parametrize(("change", "pointer", "code"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_refused_with_its_place(change: dict[str, Any], pointer: str, code: str) -> None:
    assert faults(change) == {f"/target{pointer}": code}


def test_images_and_networks_are_allowed_to_one_tenant_or_to_all() -> None:
    assert faults({"image": "registry.test:5000/acme/x"}, tenant="globex") == {"/target/image": "image_not_allowed"}
    assert faults({"image": "registry.test:5000/team/x"}, tenant="globex") == {}
    assert faults({"network": "egress"}, tenant="globex") == {"/target/network": "network_not_allowed"}


def test_nothing_is_allowed_that_is_not_listed() -> None:
    assert faults({}, ContainerRules(runtime="docker")) == {"/target/image": "image_not_allowed"}


def test_without_an_image_of_its_own_runc_needs_a_command() -> None:
    runc = ContainerRules(runtime="runc", images=("busybox",))
    assert faults({"command": None}, runc) == {"/target/command": "required"}


def test_reading_for_a_run_refuses_what_is_not_allowed_any_more() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_target({"image": "busybox"}, ContainerRules(runtime="docker", images=("other",)), tenant="acme")
    assert [error.code for error in refused.value.errors] == ["image_not_allowed"]


def test_exit_codes_decide_whether_another_try_may_help() -> None:
    def codes(**given: list[int]) -> Any:
        return read_target({"image": "busybox", "exit_codes": given}, RULES, tenant="acme").exit_codes

    assert codes().may_retry(1)
    assert not codes(never_on=[64]).may_retry(64)
    assert codes(never_on=[64]).may_retry(65)
    assert not codes(retry_on=[75]).may_retry(1)
    assert codes(retry_on=[75]).may_retry(75)
    assert not codes(retry_on=[75], never_on=[75]).may_retry(75)
