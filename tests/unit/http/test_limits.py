"""Rate limits: what passes, what waits and how long, and whose address counts."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.http.callers import Caller
from correlator.http.exchange import Request
from correlator.http.limits import Buckets, ClientAddress, Limits, bucket_of
from correlator.http.problems import HttpProblem
from tests.unit.http.requests import request


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sender(*, key: str | None = None, client: str = "192.0.2.1") -> Request:
    asked = request()
    asked.client = client
    if key is not None:
        asked.caller = Caller(key, frozenset({"ingest"}), 1)
    return asked


def retry_after(limits: Limits, asked: Request, events: int) -> int | None:
    """None when they pass."""
    try:
        limits.admit(asked, events)
    except HttpProblem as problem:
        return int(dict(problem.headers)[b"retry-after"])
    return None


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    clock = Clock()
    limits = Limits(Buckets(0, 1), Buckets(10, 5), clock=clock)
    assert [retry_after(limits, sender(), 1) for _ in range(50)] == [None] * 50
    assert retry_after(limits, sender(), 1) == 1
    assert retry_after(limits, sender(), 30) == 3
    clock.now += 3
    assert retry_after(limits, sender(), 30) is None
    assert retry_after(limits, sender(), 1) == 1


def test_a_batch_larger_than_the_burst_passes_a_full_bucket_and_leaves_it_in_debt() -> None:
    clock = Clock()
    limits = Limits(Buckets(0, 1), Buckets(10, 5), clock=clock)
    assert retry_after(limits, sender(), 1000) is None
    assert retry_after(limits, sender(), 1) == 96
    clock.now += 99.5
    assert retry_after(limits, sender(), 1000) == 1
    clock.now += 0.5
    assert retry_after(limits, sender(), 1000) is None


def test_each_key_and_each_address_has_its_own_limit() -> None:
    limits = Limits(Buckets(1, 2), Buckets(1, 3), clock=Clock())
    assert retry_after(limits, sender(key="a"), 2) is None
    assert retry_after(limits, sender(key="a", client="192.0.2.2"), 1) == 1
    assert retry_after(limits, sender(key="b"), 1) is None
    assert retry_after(limits, sender(key="c"), 1) == 1
    assert retry_after(limits, sender(key="c", client="192.0.2.2"), 2) is None, "what was refused has cost nothing"


@pytest.mark.parametrize(
    ("limits", "setting", "who"),
    [
        (Limits(Buckets(1, 1), Buckets(0, 1)), "rate_limit_per_key", "'airflow'"),
        (Limits(Buckets(0, 1), Buckets(1, 1)), "rate_limit_per_address", "192.0.2.1"),
    ],
)
def test_the_refusal_names_the_sender_the_limit_and_the_setting(limits: Limits, setting: str, who: str) -> None:
    limits.admit(sender(key="airflow"), 100)
    with pytest.raises(HttpProblem) as caught:
        limits.admit(sender(key="airflow"), 1)
    assert caught.value.kind.status == 429
    assert setting in caught.value.detail
    assert who in caught.value.detail
    assert "1 a second" in caught.value.detail


def test_no_rate_is_no_limit() -> None:
    limits = Limits(Buckets(0, 10), Buckets(0, 10), clock=Clock())
    assert retry_after(limits, sender(key="a"), 10**9) is None
    assert retry_after(limits, sender(key="a"), 10**9) is None


def test_who_has_spent_everything_is_told_before_the_body_is_read() -> None:
    clock = Clock()
    limits = Limits(Buckets(0, 1), Buckets(10, 1), clock=clock)
    limits.refuse_spent(sender())
    limits.admit(sender(), 100)
    with pytest.raises(HttpProblem):
        limits.admit(sender(), 1)
    with pytest.raises(HttpProblem):
        limits.refuse_spent(sender())
    limits.refuse_spent(sender(client="192.0.2.2"))
    clock.now += 10
    limits.refuse_spent(sender())


def test_the_number_of_buckets_is_bounded() -> None:
    buckets = Buckets(1, 1, most=100)
    for number in range(1000):
        buckets.take(f"10.0.{number // 256}.{number % 256}", 1, 0.0)
    assert len(buckets) == 100


@given(
    rate=st.floats(0.1, 1000),
    burst=st.floats(0.1, 100),
    asked=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 50)), max_size=50),
)
def test_no_sender_gets_more_than_its_rate_and_one_burst_and_whoever_waits_as_told_passes(
    rate: float, burst: float, asked: list[tuple[float, int]]
) -> None:
    buckets = Buckets(rate, burst)
    now, passed, largest = 0.0, 0, 0
    for pause, events in asked:
        now += pause
        wait = buckets.take("a", events, now)
        if wait:
            now += wait + 1e-6
            assert buckets.take("a", events, now) == 0.0
        passed += events
        largest = max(largest, events)
    assert passed <= rate * now + max(rate * burst, 1) + largest + 1e-3


def test_ipv6_counts_by_site_and_a_mapped_address_as_the_ipv4_it_is() -> None:
    assert bucket_of("2001:db8::1") == bucket_of("2001:db8::ffff:2") != bucket_of("2001:db8:0:1::1")
    assert bucket_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert bucket_of("fe80::1%eth0") == bucket_of("fe80::2%eth0")
    assert bucket_of("local") == "local"


PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "[2001:db9::1]:4711, 10.9.9.9", "2001:db9::1"),
        ("2001:db8::5", "198.51.100.1", "198.51.100.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, \x00forged\n", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_no_trusted_proxy_has(peer: str, forwarded: str, client: str) -> None:
    assert ClientAddress(PROXIES).of((peer, 1234), forwarded.encode()) == client


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert ClientAddress().of(("10.0.0.1", 1), b"198.51.100.1") == "10.0.0.1"
    assert ClientAddress(PROXIES).of(None, b"198.51.100.1") == "local"
