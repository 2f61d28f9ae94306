"""A small REST catalog with the habits of managed ones: it vends credentials with each table, numbers the
columns of a new table in its own way, and insists on `last-column-id`, as Nessie does.

What it keeps is in a catalog of pyiceberg's, with credentials of its own.
"""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate


class VendingCatalog:
    def __init__(self, catalog: Catalog, vended: Mapping[str, str]) -> None:
        """`vended`: what each table comes with."""
        self._catalog = catalog
        self._vended = dict(vended)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="catalog", daemon=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, method: str, path: str, body: Any) -> dict[str, Any]:
        parts = path.partition("?")[0].strip("/").split("/")[1:]
        if parts == ["config"]:
            return {"defaults": {}, "overrides": {}}
        if parts == ["namespaces"]:
            self._catalog.create_namespace(tuple(body["namespace"]))
            return {"namespace": body["namespace"], "properties": {}}
        namespace, name = parts[1], parts[3] if len(parts) > 3 else None
        if len(parts) == 2:
            return {
                "namespace": [namespace],
                "properties": self._catalog.load_namespace_properties(namespace),
            }
        if name is None:
            return self._told(self._create(namespace, body))
        if method == "POST":
            return self._commit((namespace, name), body)
        return self._told(self._catalog.load_table((namespace, name)))

    def _create(self, namespace: str, body: Any) -> Table:
        columns = body["schema"] | {"schema-id": 1}
        number_deeper_first(columns, itertools.count(1))
        table = self._catalog.create_table(
            (namespace, body["name"]),
            Schema.model_validate(body["schema"]),
            body["location"],
            PartitionSpec.model_validate(body["partition-spec"]),
            properties=body["properties"],
        )
        updates = (
            AddSchemaUpdate(schema=Schema.model_validate(columns)),
            SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
        )
        self._catalog.commit_table(table, (), updates)
        return self._catalog.load_table((namespace, body["name"]))

    def _commit(self, identifier: tuple[str, str], body: Any) -> dict[str, Any]:
        for update in body["updates"]:
            if update["action"] == "add-schema" and "last-column-id" not in update:
                raise ValueError("some of required attributes are not set [lastColumnId]")
        namespace, name = identifier
        named = body | {"identifier": {"namespace": [namespace], "name": name}}
        wanted = CommitTableRequest.model_validate(named)
        table = self._catalog.load_table(identifier)
        done: CommitTableResponse = self._catalog.commit_table(table, wanted.requirements, wanted.updates)
        return {
            "metadata-location": done.metadata_location,
            "metadata": json.loads(done.metadata.model_dump_json()),
        }

    def _told(self, table: Table) -> dict[str, Any]:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json()),
            "config": self._vended,
        }

    def _handler(outer) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def relay(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, said = 200, outer.answer(self.command, self.path, json.loads(body or b"null"))
                except (NoSuchNamespaceError, NoSuchTableError) as error:
                    status, said = 404, refusal(404, error)
                except CommitFailedException as error:
                    status, said = 409, refusal(409, error)
                except ValueError as error:
                    status, said = 400, refusal(400, error)
                answer = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_POST = do_HEAD = relay  # noqa: N815

        return Handler


def refusal(status: int, error: Exception) -> dict[str, Any]:
    return {"error": {"message": str(error), "type": type(error).__name__, "code": status}}


def number_deeper_first(node: Any, ids: Iterator[int]) -> None:
    """Each field of a struct, and what is in it, before the next one."""
    if not isinstance(node, dict):
        return
    for field in node.get("fields", []):
        field["id"] = next(ids)
        number_deeper_first(field["type"], ids)
    if node.get("type") == "list":
        node["element-id"] = next(ids)
        number_deeper_first(node["element"], ids)
