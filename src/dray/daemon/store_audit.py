"""The audit log of changes straight in the metadata store. No broker is asked for them, so no broker's log
has them: the command that makes one writes the line itself, to standard error."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from collections.abc import Iterable

import structlog

from dray.runtime import SystemRuntime
from dray.security.acls.model import CLUSTER_NAME, AclOperation, AclResourceType
from dray.security.audit import AuditedAct, AuditLog, write_line


def note_changes(changes: Iterable[str], operation: AclOperation = AclOperation.ALTER) -> None:
    """One JSON line each, as a broker with `logging.format: json` writes them, and as few. `operation` is
    what a broker would have asked for."""
    log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
    ).bind(logger="dray.audit", through="the metadata store")
    runtime = SystemRuntime(threads=1)
    try:
        audit = AuditLog(
            runtime.monotonic, lambda act, times, left_out: write_line(act, times, left_out, log)
        )
        for change in changes:
            audit.note(
                AuditedAct(
                    True,
                    f"System:{_system_user()}",
                    socket.gethostname(),
                    operation.name,
                    AclResourceType.CLUSTER.name,
                    CLUSTER_NAME,
                    change,
                )
            )
        audit.write_counted(everything=True)
    finally:
        runtime.close()


def _system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in many containers
        return str(os.getuid())
