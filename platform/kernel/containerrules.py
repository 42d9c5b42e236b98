"""What a container job's target may look like, and what the operator allows. Pure.

The API checks with `target_faults` on save, and the container executor reads with `read_target` before each run, by the
rules that hold then: an image that the operator has taken off the list since does not run.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from kernel.errors import Faults, FieldError
from kernel.jsonrules import pointer_to
from kernel.secretrules import reference_faults

RUNTIMES = ("runc", "docker", "kubernetes")
FIELDS = (
    "image", "command", "args", "environment", "payload_as", "cpu", "memory_mb", "pids", "scratch_mb", "network",
    "working_dir", "user", "exit_codes",
)  # fmt: skip
EXIT_FIELDS = ("success", "retry_on", "never_on")
NO_NETWORK = "none"
NOBODY = 65_534
DEFAULT_CPU, DEFAULT_MEMORY_MB, DEFAULT_PIDS, DEFAULT_SCRATCH_MB = 0.5, 128, 64, 16
MIN_CPU, MIN_MEMORY_MB = 0.01, 8
MAX_ID = 2**31 - 1
MAX_IMAGE_CHARS, MAX_PATH_CHARS, MAX_WORD_CHARS = 512, 1_024, 32_768
MAX_WORDS, MAX_VARIABLES = 200, 200
MAX_WORDS_CHARS = 131_072  # all of the command line: Linux takes this much in one word
RESERVED_PREFIX = "SHARDBEAT_"

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?)/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_USER = re.compile(r"([0-9]{1,10})(?::([0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """The operator's. `images` and `networks` hold patterns, for all tenants or for one: `acme=registry.test/acme/*`.

    Without a runtime there are no container jobs.
    """

    runtime: str = ""
    images: Sequence[str] = ()
    networks: Sequence[str] = ()
    max_cpu: float = 1.0
    max_memory_mb: int = 512
    max_pids: int = 256
    max_scratch_mb: int = 64
    root_user: bool = False

    def allows_image(self, image: str, tenant: str) -> bool:
        return _listed(image, self.images, tenant)

    def allows_network(self, network: str, tenant: str) -> bool:
        return network == NO_NETWORK or _listed(network, self.networks, tenant)


@dataclass(frozen=True, slots=True)
class ExitCodes:
    """Which exit codes are a success, and what follows from the others; `never_on` wins over `retry_on`."""

    success: frozenset[int] = frozenset({0})
    retry_on: frozenset[int] = frozenset()  # empty: all failures may be tried again
    never_on: frozenset[int] = frozenset()

    def may_retry(self, code: int) -> bool:
        return code not in self.never_on and (not self.retry_on or code in self.retry_on)


@dataclass(frozen=True, slots=True)
class Target:
    """What to run. Variables are texts, or {"secret": name} before they are filled."""

    image: str
    command: tuple[str, ...]  # empty: the image's own
    args: tuple[str, ...]
    environment: Mapping[str, Any]
    payload_as: Literal["file", "env"]
    cpu: float
    memory_mb: int
    pids: int
    scratch_mb: int
    network: str
    working_dir: str  # empty: the image's own, or /
    uid: int
    gid: int
    exit_codes: ExitCodes = field(default_factory=ExitCodes)


def rules_of(settings: Any) -> ContainerRules:
    """The rules in Django's settings, as the web processes and the workers both read them."""
    images = [*settings.CONTAINER_IMAGES, *(settings.CONTAINER_ROOTFS if settings.CONTAINER_RUNTIME == "runc" else ())]
    return ContainerRules(
        runtime=settings.CONTAINER_RUNTIME, images=tuple(images), networks=tuple(settings.CONTAINER_NETWORKS),
        max_cpu=settings.CONTAINER_MAX_CPU_MILLIS / 1_000, max_memory_mb=settings.CONTAINER_MAX_MEMORY_MB,
        max_pids=settings.CONTAINER_MAX_PIDS, max_scratch_mb=settings.CONTAINER_MAX_SCRATCH_MB,
        root_user=settings.CONTAINER_ROOT_USER,
    )  # fmt: skip


def target_faults(target: Any, rules: ContainerRules, *, tenant: str, base: str = "") -> list[FieldError]:
    """All faults of a container job's target; none means that it may be saved."""
    return _read(target, rules, tenant, base)[1]


def read_target(target: Any, rules: ContainerRules, *, tenant: str) -> Target:
    """The complete target. Raises InvalidInput with what the rules do not allow (any more)."""
    read, errors = _read(target, rules, tenant, "")
    Faults(errors).raise_if_any()
    assert read is not None
    return read


def _read(target: Any, rules: ContainerRules, tenant: str, base: str) -> tuple[Target | None, list[FieldError]]:
    faults = Faults()
    if not isinstance(target, Mapping):
        faults.add(base, "type", 'must be an object such as {"image": "busybox", "command": ["true"]}.')
        return None, faults.errors
    reader = _Reader(target, rules, tenant, base, faults)
    reader.only(target, FIELDS, base)
    uid, gid = reader.user()
    read = Target(
        image=reader.image(),
        command=reader.words("command"),
        args=reader.words("args"),
        environment=reader.environment(),
        payload_as=reader.payload_as(),
        cpu=reader.number("cpu", MIN_CPU, rules.max_cpu, DEFAULT_CPU),
        memory_mb=int(reader.number("memory_mb", MIN_MEMORY_MB, rules.max_memory_mb, DEFAULT_MEMORY_MB, whole=True)),
        pids=int(reader.number("pids", 1, rules.max_pids, DEFAULT_PIDS, whole=True)),
        scratch_mb=int(reader.number("scratch_mb", 0, rules.max_scratch_mb, DEFAULT_SCRATCH_MB, whole=True)),
        network=reader.network(),
        working_dir=reader.working_dir(),
        uid=uid,
        gid=gid,
        exit_codes=reader.exit_codes(),
    )
    return read, faults.errors


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one member after another and notes every fault; after a fault the value returned is of no meaning."""

    target: Mapping[str, Any]
    rules: ContainerRules
    tenant: str
    base: str
    faults: Faults

    def only(self, given: Mapping[str, Any], known: Iterable[str], pointer: str) -> None:
        names = tuple(known)
        for name in [name for name in given if name not in names][:20]:
            detail = f"There is no such field. Known: {', '.join(names)}."
            self.faults.add(pointer_to(pointer, name), "unknown_field", detail)

    def image(self) -> str:
        image = self.target.get("image")
        if image is None:
            self._fault("image", "required", "This field is required: the image to run.")
        elif not isinstance(image, str) or len(image) > MAX_IMAGE_CHARS or not _IMAGE.fullmatch(image):
            self._fault("image", "invalid", "must be the name of an image such as registry.example.com/team/name:1.2.")
        elif not self.rules.allows_image(image, self.tenant):
            self._fault("image", "image_not_allowed", "This image is not on the operator's list for this tenant.")
        return str(image)

    def words(self, name: str) -> tuple[str, ...]:
        words = self.target.get(name)
        if words is None:
            if name == "command" and self.rules.runtime == "runc":
                self._fault(name, "required", "This field is required here: the program to run, with its arguments.")
            return ()
        if not isinstance(words, list) or len(words) > MAX_WORDS or not all(map(_is_word, words)):
            detail = f"must be a list of at most {MAX_WORDS} texts without NUL, each of {MAX_WORD_CHARS:,} characters."
            self._fault(name, "type", detail)
            return ()
        if sum(map(len, words)) > MAX_WORDS_CHARS:
            self._fault(name, "too_long", f"may have {MAX_WORDS_CHARS:,} characters in all.")
        if name == "command" and not (words and words[0]):
            self._fault(name, "type", "must begin with the program to run.")
        return tuple(words)

    def environment(self) -> dict[str, Any]:
        given = self.target.get("environment")
        if given is None:
            return {}
        if not isinstance(given, Mapping) or len(given) > MAX_VARIABLES:
            self._fault("environment", "type", f"must be an object of at most {MAX_VARIABLES} names with texts.")
            return {}
        for name, value in given.items():
            pointer = pointer_to(f"{self.base}/environment", name)
            if not _VARIABLE.fullmatch(name):
                self.faults.add(pointer, "invalid_name", "A variable's name has letters, digits and _.")
            elif name.upper().startswith(RESERVED_PREFIX):
                self.faults.add(pointer, "reserved", "Variables that begin with SHARDBEAT_ are set by the platform.")
            elif isinstance(value, str) and not _is_word(value):
                self.faults.add(pointer, "type", f"may have {MAX_WORD_CHARS:,} characters and no NUL.")
            else:
                self.faults.errors += reference_faults(value, pointer)
        return dict(given)

    def payload_as(self) -> Literal["file", "env"]:
        given = self.target.get("payload_as", "file")
        if given not in ("file", "env"):
            self._fault("payload_as", "choice", "must be file or env.")
        return "env" if given == "env" else "file"

    def number(self, name: str, least: float, most: float, default: float, *, whole: bool = False) -> float:
        value = self.target.get(name)
        if value is None:
            return min(default, most)
        fits = isinstance(value, int) if whole else isinstance(value, int | float)
        if isinstance(value, bool) or not fits or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            self._fault(name, "range", f"must be {kind} from {least:g} to {most:g}, which is the operator's limit.")
            return default
        return float(value)

    def network(self) -> str:
        network = self.target.get("network", NO_NETWORK)
        if not isinstance(network, str) or not self.rules.allows_network(network, self.tenant):
            detail = "must be none, or a network that the operator allows to this tenant."
            self._fault("network", "network_not_allowed", detail)
        return str(network)

    def working_dir(self) -> str:
        path = self.target.get("working_dir")
        if path is None:
            return ""
        if not _is_word(path) or not path.startswith("/") or len(path) > MAX_PATH_CHARS or ".." in path.split("/"):
            self._fault("working_dir", "invalid", "must be an absolute path without `..` in it.")
        return str(path)

    def user(self) -> tuple[int, int]:
        given = self.target.get("user")
        if given is None:
            return NOBODY, NOBODY
        found = _USER.fullmatch(given) if isinstance(given, str) else None
        if not found or int(found[1]) > MAX_ID or int(found[2] or 0) > MAX_ID:
            self._fault("user", "invalid", 'must be a user id such as "1000" or "1000:1000"; names are not known here.')
            return NOBODY, NOBODY
        uid, gid = int(found[1]), int(found[2] or found[1])
        if (uid == 0 or gid == 0) and not self.rules.root_user:
            self._fault("user", "root_not_allowed", "The operator does not allow root in containers.")
        return uid, gid

    def exit_codes(self) -> ExitCodes:
        given = self.target.get("exit_codes")
        if given is None:
            return ExitCodes()
        if not isinstance(given, Mapping):
            self._fault("exit_codes", "type", 'must be an object such as {"never_on": [64]}.')
            return ExitCodes()
        self.only(given, EXIT_FIELDS, f"{self.base}/exit_codes")
        found: dict[str, frozenset[int]] = {}
        for name in EXIT_FIELDS:
            codes = given.get(name)
            if codes is None:
                continue
            if not isinstance(codes, list) or len(codes) > 256 or not all(map(_is_exit_code, codes)):
                self._fault(f"exit_codes/{name}", "type", "must be a list of exit codes from 0 to 255.")
            else:
                found[name] = frozenset(codes)
        if "success" in found and not found["success"]:
            self._fault("exit_codes/success", "type", "must name at least one code.")
        both = found.get("success", frozenset({0})) & (found.get("retry_on", set()) | found.get("never_on", set()))
        if both:
            self._fault("exit_codes", "contradiction", f"{min(both)} can't be a success and a failure.")
        return ExitCodes(**found)

    def _fault(self, name: str, code: str, detail: str) -> None:
        self.faults.add(f"{self.base}/{name}", code, detail)


def _listed(name: str, patterns: Iterable[str], tenant: str) -> bool:
    for pattern in patterns:
        owner, separator, rest = pattern.partition("=")
        if separator and owner != tenant:
            continue
        if fnmatchcase(name, rest if separator else pattern):
            return True
    return False


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_WORD_CHARS and "\x00" not in value


def _is_exit_code(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255
