"""A client's zone is read from its `client.id`; its rack stands for a zone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.cluster import AdvertisedListener, Broker, brokers_in, zone_of_client, zone_of_rack


def broker(broker_id: int, zone: str | None, rack: str | None = None) -> Broker:
    return Broker(broker_id, (AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092),), zone=zone, rack=rack)


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("zone_id=use1-az4", "use1-az4"),
        ("zone_id=use1-az4,team=billing,app=invoices", "use1-az4"),
        ("team=billing,zone_id=use1-az4", "use1-az4"),
        (" zone_id = use1-az4 , team = billing", "use1-az4"),
        ("my consumer,zone_id=a,-1", "a"),
        ("zone_id=a=b", "a=b"),
        ("zone_id=first,zone_id=second", "first"),
        ("zone_id=,zone_id=second", None),
        ("zone_id=", None),
        ("zone_id", None),
        ("my_zone_id=a", None),
        ("ZONE_ID=a", None),
        ("app", None),
        ("", None),
        (None, None),
    ],
)
def test_the_zone_of_a_client(client_id: str | None, zone: str | None) -> None:
    assert zone_of_client(client_id) == zone


@given(st.text(max_size=60))
def test_any_client_id_can_be_read(client_id: str) -> None:
    zone = zone_of_client(client_id)
    assert zone is None or (zone and zone in client_id)


def test_brokers_of_a_zone() -> None:
    near, far, nowhere = broker(1, "a"), broker(2, "b"), broker(3, None)
    everyone = [near, far, nowhere]
    assert brokers_in("a", everyone) == [near]
    assert brokers_in("c", everyone) == []
    assert brokers_in(None, everyone) == []


def test_a_rack_is_a_zone_or_stands_in_one() -> None:
    everyone = [broker(1, "a", "r1"), broker(2, "b", "a"), broker(3, "b", "r2"), broker(4, None, "r3")]
    assert zone_of_rack("a", everyone) == "a"
    assert zone_of_rack("r2", everyone) == "b"
    assert zone_of_rack("r3", everyone) is None
    assert zone_of_rack("r4", everyone) is None
    assert zone_of_rack("", [broker(1, "", "")]) is None
