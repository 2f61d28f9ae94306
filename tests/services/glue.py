"""A stand-in for AWS Glue: moto, a mock of AWS, as a server on loopback. No real Glue can be had in a test.

What it shows is that our settings reach boto3 and pyiceberg, and that commits run through them. What it
cannot show is that Glue itself behaves as its documentation says. One rule of that documentation moto lacks,
and the tables rest on it, so it is added here: UpdateTable with a `VersionId` that is not the current one is
refused with ConcurrentModificationException.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse
from moto.server import ThreadedMotoServer

REGION = "eu-west-1"


class ConcurrentModification(JsonRESTError):
    def __init__(self) -> None:
        super().__init__(
            "ConcurrentModificationException", "Update table failed due to concurrent modifications."
        )


@contextmanager
def glue_server() -> Iterator[int]:
    """Its port. moto keeps what it knows for the life of the process: databases need names of their own."""
    unchecked = GlueResponse.update_table
    one_at_a_time = threading.Lock()

    def checked(self: Any) -> ActionResult:
        given = self.parameters.get("VersionId")
        with one_at_a_time:
            name = self.parameters["TableInput"]["Name"]
            table = self.glue_backend.get_table(self.parameters["DatabaseName"], name)
            if given is not None and given != table.as_dict()["VersionId"]:
                raise ConcurrentModification
            return unchecked(self)

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    patch = pytest.MonkeyPatch()
    patch.setattr(GlueResponse, "update_table", checked)
    server.start()
    try:
        yield server.get_host_and_port()[1]
    finally:
        server.stop()
        patch.undo()
