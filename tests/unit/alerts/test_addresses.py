"""Where alerts may go."""

import socket

import pytest

from correlator.alerts.addresses import AddressError, resolved

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "[::1]",
    "[fd00::1]",
    "[::ffff:10.0.0.1]",
]
NEVER = [
    "169.254.169.254",
    "224.0.0.1",
    "0.0.0.0",  # noqa: S104 (an address that is refused)
    "255.255.255.255",
    "240.0.0.1",
    "[::]",
    "[fe80::1]",
    "[ff02::1]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[2002:a9fe:a9fe::1]",
]


def refusal(host: str, *, allow_private: bool = False) -> str:
    with pytest.raises(AddressError) as refused:
        resolved(host.strip("[]"), 80, allow_private=allow_private)
    return str(refused.value)


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_refused_unless_they_are_allowed(host: str) -> None:
    assert "alerts_allow_private" in refusal(host)
    assert resolved(host.strip("[]"), 80, allow_private=True)


@pytest.mark.parametrize("host", NEVER)
def test_some_addresses_are_refused_whatever_is_allowed(host: str) -> None:
    assert "alerts never go" in refusal(host)
    assert "alerts never go" in refusal(host, allow_private=True)


@pytest.mark.parametrize("host", ["64:ff9b::10.0.0.1", "2002:0a00:0001::1"])
def test_an_address_within_an_address_is_looked_at(host: str) -> None:
    assert "alerts_allow_private" in refusal(host)


@pytest.mark.parametrize("host", ["127.1", "0x7f.0.0.1", "2130706433", "0"])
def test_odd_spellings_of_an_address_lead_no_further(host: str) -> None:
    assert "alerts" in refusal(host)


def test_a_name_that_leads_to_this_machine_is_refused_with_its_address() -> None:
    assert refusal("localhost").startswith(("localhost is 127.0.0.1", "localhost is ::1"))


@pytest.mark.parametrize("host", ["1.1.1.1", "2606:4700:4700::1111"])
def test_public_addresses_are_taken(host: str) -> None:
    assert resolved(host, 443, allow_private=False) == [(host, 443)]


def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [(2, 1, 6, "", (address, 80)) for address in ("1.1.1.1", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)

    assert "127.0.0.1" in refusal("two.example")


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "no-such-host.invalid", "\udc80"])
def test_what_cannot_be_resolved_is_told(host: str) -> None:
    assert "cannot be resolved" in refusal(host)
