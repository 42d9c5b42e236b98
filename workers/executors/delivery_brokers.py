"""Putting one message on a tenant's own broker, and waiting for the broker's word that it has it.

Names are resolved and judged here, and the connection goes to an address that was judged: what a name means a moment
later does not matter. Connections are kept, a bounded number of them, by their whole address with its password.
"""

import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Protocol

import amqp.exceptions
import kombu
import redis

from kernel.deliveryrules import Broker, may_reach
from workers.executors.address import AddressBlocked, system_addresses

KEPT = 64  # connections to brokers
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Message:
    """What is put on a broker."""

    id: str
    body: bytes
    headers: Mapping[str, str]


class BrokerFailed(Exception):
    """The broker did not take the message, as far as is known. `class_` is stable, the message is ours."""

    def __init__(self, class_: str, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.class_, self.message, self.retryable = class_, message, retryable


class Line(Protocol):
    """A connection to a broker."""

    def put(self, target: Mapping[str, Any], message: Message) -> dict[str, Any]:
        """Where the message is, once the broker has it. Raises BrokerFailed."""

    def close(self) -> None: ...


class Lines:
    """Open connections, the ones used last. Thread-safe."""

    def __init__(self, *, kept: int = KEPT) -> None:
        self._kept = kept
        self._lines: OrderedDict[tuple[Broker, tuple[str, ...]], Line] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, broker: Broker, network: tuple[str, ...]) -> Line:
        """The line to this broker; it connects when it is used."""
        key, old = (broker, network), None
        with self._lock:
            line = self._lines.pop(key, None)
            if line is None:
                line = RedisLine(broker, network) if broker.transport == "redis" else AmqpLine(broker, network)
            self._lines[key] = line
            if len(self._lines) > self._kept:
                _, old = self._lines.popitem(last=False)
        if old is not None:
            old.close()
        return line

    def close(self) -> None:
        with self._lock:
            lines, self._lines = list(self._lines.values()), OrderedDict()
        for line in lines:
            line.close()


def allowed_addresses(host: str, port: int, network: tuple[str, ...]) -> list[str]:
    """The addresses of a broker, all of which may be called. Raises AddressBlocked, OSError."""
    found = system_addresses(host)
    if not found:
        raise OSError("the name has no address")
    if not all(may_reach(ip_address(one), port, network) for one in found):
        raise AddressBlocked
    return found


class RedisLine:
    """XADD to a stream. The client's pool is thread-safe and opens lost connections again."""

    def __init__(self, broker: Broker, network: tuple[str, ...]) -> None:
        self._client = redis.Redis(
            connection_pool=redis.ConnectionPool(
                connection_class=_checked(redis.SSLConnection if broker.tls else redis.Connection, network),
                host=broker.host, port=broker.port, db=int(broker.path), username=broker.user, password=broker.password,
                socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=ANSWER_TIMEOUT_S, max_connections=16,
            )
        )  # fmt: skip

    def put(self, target: Mapping[str, Any], message: Message) -> dict[str, Any]:
        fields: dict[Any, Any] = {**message.headers, "id": message.id, "body": message.body}
        most = target.get("max_length")
        try:
            entry = self._client.xadd(target["stream"], fields, maxlen=most, approximate=most is not None)
        except redis.AuthenticationError:
            raise BrokerFailed("broker_refused", "The broker refused the user or the password.") from None
        except redis.TimeoutError:
            raise BrokerFailed("timeout", "The broker did not answer in time.") from None
        except redis.ConnectionError as error:
            raise _unreachable(error) from None
        except redis.RedisError as error:
            raise BrokerFailed("broker_refused", f"The broker refused the message: {type(error).__name__}.") from None
        return {"stream": target["stream"], "id": entry.decode() if isinstance(entry, bytes) else str(entry)}

    def close(self) -> None:
        self._client.close()
        self._client.connection_pool.disconnect()


class AmqpLine:
    """One channel with publisher confirms; one message at a time."""

    def __init__(self, broker: Broker, network: tuple[str, ...]) -> None:
        self._broker, self._network = broker, network
        self._lock = threading.Lock()
        self._connection: Any = None

    def put(self, target: Mapping[str, Any], message: Message) -> dict[str, Any]:
        exchange = target.get("exchange") or ""
        key = target.get("queue") or target.get("routing_key") or ""
        with self._lock:
            try:
                connection = self._connected()
                producer = connection.Producer(connection.default_channel, auto_declare=False)
                producer.publish(
                    message.body, exchange=exchange, routing_key=key, headers=dict(message.headers), mandatory=True,
                    content_type="application/json", content_encoding="utf-8", delivery_mode=2, message_id=message.id,
                    retry=False, timeout=ANSWER_TIMEOUT_S, confirm_timeout=ANSWER_TIMEOUT_S,
                )  # fmt: skip
            except BrokerFailed:
                raise
            except Exception as error:  # the line may be in any state: the next message gets a new one
                self._drop()
                raise _amqp_failure(error) from None
        return {"exchange": exchange, "routing_key": key}

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connected(self) -> Any:
        if self._connection is None or not self._connection.connected:
            self._drop()
            broker = self._broker
            address = allowed_addresses(broker.host, broker.port, self._network)[0]
            connection = kombu.Connection(
                hostname=address, port=broker.port, userid=broker.user or "guest", password=broker.password or "guest",
                virtual_host=broker.path, transport="pyamqp", ssl=_tls(broker.host) if broker.tls else False,
                connect_timeout=CONNECT_TIMEOUT_S,
                transport_options={
                    "confirm_publish": True, "read_timeout": ANSWER_TIMEOUT_S, "write_timeout": ANSWER_TIMEOUT_S,
                },
            )  # fmt: skip
            connection.connect()
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.collect(socket_timeout=1)


def _tls(host: str) -> dict[str, Any]:
    paths = ssl.get_default_verify_paths()
    return {"server_hostname": host, "cert_reqs": ssl.CERT_REQUIRED, "ca_certs": paths.cafile or paths.openssl_cafile}


@lru_cache(maxsize=256)
def _checked(kind: type[Any], network: tuple[str, ...]) -> type[Any]:
    """A kind of connection that goes only where it may."""

    class Checked(kind):
        def _connect(self) -> socket.socket:
            last: OSError = OSError("no address")
            for address in allowed_addresses(self.host, self.port, network):
                try:
                    line = socket.create_connection((address, self.port), timeout=CONNECT_TIMEOUT_S)
                except OSError as error:
                    last = error
                    continue
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line.settimeout(self.socket_timeout)
                wrap: Callable[[socket.socket], socket.socket] = getattr(self, "_wrap_socket_with_ssl", lambda one: one)
                return wrap(line)
            raise last

    return Checked


def _amqp_failure(error: Exception) -> BrokerFailed:
    match error:
        case amqp.exceptions.AccessRefused() | amqp.exceptions.NotAllowed():
            return BrokerFailed("broker_refused", "The broker refused the user, the password or the virtual host.")
        case amqp.exceptions.NoConsumers() | amqp.exceptions.NotFound():
            return BrokerFailed("broker_unroutable", "The broker has no such exchange or queue, or no way to one.")
        case amqp.exceptions.AMQPError() if getattr(error, "reply_code", 0) == 312:
            return BrokerFailed("broker_unroutable", "The broker has no queue for this message.")
        case TimeoutError():
            return BrokerFailed("timeout", "The broker did not answer in time.")
        case OSError():
            return _unreachable(error)
    return BrokerFailed("broker_failed", f"The broker did not take the message: {type(error).__name__}.")


def _unreachable(error: Exception) -> BrokerFailed:
    """Also where a client has wrapped what was wrong: the message says no address."""
    causes: list[BaseException | None] = [error, error.__cause__, error.__context__]
    if any(isinstance(one, AddressBlocked) for one in causes) or str(AddressBlocked()) in str(error):
        return BrokerFailed("address_blocked", "The broker's address is not public.", retryable=False)
    return BrokerFailed("connect_failed", "The broker could not be reached.")
