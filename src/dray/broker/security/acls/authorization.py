"""Authorization as the APIs ask for it: one `Access` per client, which knows who it is, and from
where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.base.runtime import Runtime
from dray.broker.security.acls.decision import AclIndex, Authorizer, Decided
from dray.broker.security.acls.store import Acls
from dray.broker.security.audit import AuditedAct, AuditLog
from dray.broker.security.principals import ANONYMOUS
from dray.kafka.acls import AclOperation, AclResourceType, as_java_writes

_CHANGES: Final = sum(
    1 << operation
    for operation in (
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CLUSTER_ACTION,
    )
)
"""Noted in the audit log when they are allowed, too."""


def host_of(peer: str) -> str:
    """The host of `address:port`, as ACLs are asked for it."""
    return as_java_writes(peer.rpartition(":")[0].strip("[]"))


class Access:
    """The rights of one principal, from one host."""

    __slots__ = ("_audit", "_authorizer", "_decided", "_generation", "host", "principal")

    def __init__(self, authorizer: Authorizer, audit: AuditLog, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._decided: Decided = []
        self._generation = -1
        self.principal = principal
        self.host = host

    def may(
        self,
        operation: AclOperation,
        kind: AclResourceType,
        name: str,
        *,
        denial_is_noted: bool = True,
        about: str = "",
    ) -> bool:
        """`denial_is_noted`: False where a denial is no refusal, as in lists that show what may be seen.
        `about`: for the audit log, what a right to the cluster is asked for."""
        generation = self._authorizer.generation()
        if generation != self._generation:
            self._decided = self._authorizer.decided(self.principal, self.host)
            self._generation = self._authorizer.generation()
        bits = self._decided[kind].get(name)
        if bits is None:
            bits = self._authorizer.bits(self.principal, self.host, kind, name)
        if bits >> operation & 1:
            if _CHANGES >> operation & 1:
                self._note(True, operation, kind, name, about)
            return True
        if denial_is_noted:
            self._note(False, operation, kind, name, about)
        return False

    def may_on_some(self, operation: AclOperation, kind: AclResourceType) -> bool:
        """On at least one resource of this type."""
        allowed = self._authorizer.allowed_on_some(self.principal, self.host, operation, kind)
        if not allowed:
            self._note(allowed, operation, kind, "(any)")
        return allowed

    def operations(self, kind: AclResourceType, name: str) -> int:
        """The bit field of what may be done to the resource."""
        return self._authorizer.operations(self.principal, self.host, kind, name)

    def _note(
        self, allowed: bool, operation: AclOperation, kind: AclResourceType, name: str, about: str = ""
    ) -> None:
        act = AuditedAct(allowed, self.principal, self.host, operation.name, kind.name, name, about)
        self._audit.note(act)


class Authorization:
    """Authorization of clients: the ACLs, those whom none restrict, and the audit log. Without ACLs every
    client may do everything, and what it changes is in the audit log."""

    def __init__(
        self,
        acls: Acls | None,
        runtime: Runtime,
        super_users: Iterable[str] = (),
        *,
        allow_if_no_acl: bool = False,
        audit: AuditLog | None = None,
    ) -> None:
        self.acls = acls
        self.audit = audit or AuditLog(runtime.monotonic)
        if acls is None:
            self._authorizer = Authorizer(AclIndex(), allow_if_no_acl=True)
        else:
            self._authorizer = Authorizer(acls.index, super_users, allow_if_no_acl=allow_if_no_acl)

    def access(self, principal: str | None, peer: str) -> Access:
        """Of a client. A client that was not asked for a name has the one that all such clients have."""
        return Access(self._authorizer, self.audit, principal or ANONYMOUS, host_of(peer))
