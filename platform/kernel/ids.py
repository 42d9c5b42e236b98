"""Identifiers: UUIDv7 (RFC 9562 section 5.7), and the ids and numbers that follow from other ids."""

import hashlib
import os
import time
import zlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

ID_SLACK = timedelta(seconds=30)  # ids carry the clock of the process that made them, rows the database's

_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_RAND_A_MASK = 0xFFF << 64
_RAND_B_MASK = (1 << 62) - 1


def uuid7() -> UUID:
    """A new time-ordered id (48 bits of milliseconds, 74 random bits)."""
    return uuid7s(1)[0]


def uuid7s(count: int) -> list[UUID]:
    """`count` new ids with one read of the clock and of the random source; ascending within the call."""
    millis = (time.time_ns() // 1_000_000) << 80
    noise = os.urandom(10 * count)
    return sorted(UUID(int=_v7(millis, int.from_bytes(noise[i : i + 10], "big"))) for i in range(0, 10 * count, 10))


def first_id_at(instant: datetime) -> UUID:
    """The smallest id that may have been made at `instant`, and the largest for before it: a bound for the index."""
    millis = max(0, int(instant.timestamp() * 1000))
    return UUID(int=min(millis, (1 << 48) - 1) << 80)


def made_at(key: UUID) -> datetime:
    """When an id was made, in UTC, to the millisecond."""
    return datetime.fromtimestamp((key.int >> 80) / 1_000, UTC)


def ids_beside(key: UUID) -> tuple[UUID, UUID]:
    """The smallest and the largest id of the same millisecond: the attempts of an execution lie in the range of its."""
    noise = (1 << 80) - 1
    return UUID(int=key.int & ~noise), UUID(int=key.int | noise)


def attempt_id(execution_id: UUID, number: int) -> UUID:
    """The id of attempt `number` (from 1) of an execution.

    It follows from the two, so that the attempts of an execution are found by primary key and need no index of
    their own. The time part is the execution's; the rest is a hash.
    """
    millis = (execution_id.int >> 80) << 80
    digest = hashlib.blake2b(execution_id.bytes + number.to_bytes(4, "big"), digest_size=10).digest()
    return UUID(int=_v7(millis, int.from_bytes(digest, "big")))


def id_from(at: datetime, *parts: bytes) -> UUID:
    """The id that follows from an instant (its time part) and from what else is told apart: the same whoever asks."""
    digest = hashlib.blake2b(b"\0".join(parts), digest_size=10).digest()
    return UUID(int=_v7(int(at.timestamp() * 1_000) << 80, int.from_bytes(digest, "big")))


def occurrence_run_key(schedule_id: UUID, nominal_at: datetime) -> str:
    """The run key of a schedule's occurrence: the same whoever computes it, so that it can't be made twice."""
    return f"{schedule_id.hex}.{nominal_at:%Y%m%dT%H%M%S}Z"


def shard_of(key: UUID, shards: int) -> int:
    """The shard of a due entry: CRC-32 of the key modulo the number of shards. Must never change."""
    return zlib.crc32(key.bytes) % shards


def _v7(millis_shifted: int, noise: int) -> int:
    return millis_shifted | _VERSION_7 | _VARIANT | (noise & (_RAND_A_MASK | _RAND_B_MASK))
