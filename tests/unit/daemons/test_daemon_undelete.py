"""`drayd admin lost --undelete` where it cannot work: one line, before any store is opened."""

from __future__ import annotations

import sys

import pytest

from dray.daemons.assembly.failures import Failure
from dray.daemons.recovery.lost import _must_undelete


@pytest.mark.parametrize(
    ("url", "way"),
    [
        ("az://box/some/prefix", "undelete --container-name box --name some/prefix/PATH"),
        ("gs://bucket", "gcloud storage restore gs://bucket/PATH"),
        ("file:/data/objects", "put others back from a copy"),
        ("memory:", "no versions"),
    ],
)
def test_another_store_is_one_line_that_says_what_to_do(url: str, way: str) -> None:
    with pytest.raises(Failure, match="it is for S3 alone") as caught:
        _must_undelete(url)
    assert str(caught.value).endswith(way)


def test_without_boto3_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _must_undelete("s3://bucket")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Failure, match="it needs the Python package boto3; install it with: pip"):
        _must_undelete("s3://bucket")
