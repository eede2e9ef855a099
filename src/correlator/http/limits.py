"""How many events one key and one address may send, as token buckets, and whose address a request has."""

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

from correlator.http.exchange import Request
from correlator.http.problems import TOO_MANY_REQUESTS, HttpProblem

Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address

LOCAL: Final = "local"
"""The client of a Unix socket."""
_MOST_BUCKETS = 10_000
_MOST_ADDRESSES = 4096
_LONGEST_FORWARDED = 2048
_NO_WAIT = 1e-6
"""What sums of floats are off by must not cost anybody a second."""
_SITE_PREFIX = 64
"""An IPv6 site is given at least a /64: whoever has one address of it has them all."""


class Buckets:
    """A token bucket for each sender: `rate` events a second, and what `burst_seconds` of silence save up.

    A bucket is kept as the moment at which it will be full again. Beyond `most` the oldest ones are forgotten: that
    bounds the memory, and forgives the debt of a sender that ten thousand others came after.
    """

    def __init__(self, rate: float, burst_seconds: float, *, most: int = _MOST_BUCKETS) -> None:
        self.rate = rate
        self._cost = 1.0 / rate if rate else 0.0
        # At least one event, or else none would ever pass.
        self._burst = max(burst_seconds, self._cost)
        self._most = most
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, sender: str, events: int, now: float) -> float:
        """Take so many tokens and return 0, or leave them and return the seconds until they will be there.

        More than a whole bucket passes when the bucket is full, and leaves it in debt.
        """
        cost = events * self._cost
        full_at = self._full_at.get(sender)
        if full_at is None or full_at <= now:  # full, and so nearly always
            self._full_at[sender] = now + cost
            if full_at is None and len(self._full_at) > self._most:
                del self._full_at[next(iter(self._full_at))]
            return 0.0
        wait = full_at - now - (self._burst - cost if cost < self._burst else 0.0)
        if wait > _NO_WAIT:
            return wait
        self._full_at[sender] = full_at + cost
        return 0.0

    def give_back(self, sender: str, events: int) -> None:
        if sender in self._full_at:
            self._full_at[sender] -= events * self._cost


class Limits:
    """Both limits of a request. A rate of 0 is no limit."""

    def __init__(self, per_key: Buckets, per_address: Buckets, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_key = per_key
        self._per_address = per_address
        self._clock = clock
        self._refusing_until = -math.inf

    def admit(self, request: Request, events: int) -> None:
        """Let so many events pass, or raise 429. Events that are refused cost nothing."""
        now = self._clock()
        caller = request.caller
        key = caller.name if caller is not None and caller.key_id is not None and self._per_key.rate else None
        if key is not None:
            wait = self._per_key.take(key, events, now)
            if wait:
                raise self._refusal(f"the key {key!r}", "rate_limit_per_key", self._per_key.rate, now, wait)
        if self._per_address.rate:
            wait = self._per_address.take(bucket_of(request.client), events, now)
            if wait:
                if key is not None:
                    self._per_key.give_back(key, events)
                sender = f"the address {request.client}"
                raise self._refusal(sender, "rate_limit_per_address", self._per_address.rate, now, wait)

    def refuse_spent(self, request: Request) -> None:
        """Raise 429 for a sender whose tokens are all gone: worth knowing before a body is read."""
        if self._clock() < self._refusing_until:
            self.admit(request, 0)

    def _refusal(self, sender: str, setting: str, rate: float, now: float, wait: float) -> HttpProblem:
        self._refusing_until = max(self._refusing_until, now + wait)
        return HttpProblem(
            TOO_MANY_REQUESTS,
            f"More events came from {sender} than its limit allows: {rate:,g} a second on average ({setting}). "
            "Nothing of this request was stored; send it again after the time in Retry-After.",
            retry_after=wait,
        )


@lru_cache(maxsize=_MOST_ADDRESSES)
def bucket_of(client: str) -> str:
    """The sender that an address counts for: an IPv6 address for its whole /64."""
    address = _address(client.partition("%")[0]) if ":" in client else None
    if address is None:
        return client
    return str(address if address.version == 4 else IPv6Network((address, _SITE_PREFIX), strict=False))  # noqa: PLR2004


class ClientAddress:
    """Who sent a request: its peer, or whom a trusted proxy names in X-Forwarded-For."""

    def __init__(self, trusted_proxies: Sequence[Network] = ()) -> None:
        self._trusted = tuple(trusted_proxies)
        self._seen_through = lru_cache(maxsize=_MOST_ADDRESSES)(self._see_through)

    def of(self, peer: Sequence[object] | None, forwarded_for: bytes | None) -> str:
        """`peer` is ASGI's `client`, a host and a port, or None for a Unix socket."""
        host = str(peer[0]) if peer else LOCAL
        if forwarded_for is None or not self._trusted or len(forwarded_for) > _LONGEST_FORWARDED:
            return host
        return self._seen_through(host, forwarded_for)

    def _see_through(self, host: str, forwarded_for: bytes) -> str:
        """From right to left, each hop vouches for the one before it, as long as it is trusted itself."""
        current = _address(host)
        if current is None:
            return host
        for hop in reversed(forwarded_for.decode("latin-1").split(",")):
            if not self._trusts(current):
                break
            named = _address(hop.strip())
            if named is None:
                break
            current = named
        return str(current)

    def _trusts(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._trusted)


def _address(text: str) -> Address | None:
    """An address as proxies write it: with a port or without, IPv6 in brackets or not."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
