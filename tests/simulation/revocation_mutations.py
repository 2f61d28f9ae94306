"""Rules of who is served, each taken out of the code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.noticing import Mutation

from dray.broker.api import fetch
from dray.broker.security.acls.authorization import Access
from dray.broker.security.acls.decision import AclIndex, Authorizer
from dray.broker.security.sasl import SaslSession
from dray.broker.security.users import Users
from dray.kafka.sasl import server
from dray.metadata.watching import Follower


def nothing_is_re_read(patch: pytest.MonkeyPatch) -> None:
    async def wait(_: Follower) -> None:
        await asyncio.get_running_loop().create_future()

    patch.setattr(Follower, "_reread", wait)


def decisions_are_remembered_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Authorizer, "generation", lambda _: 0)


def connections_remember_their_rights(patch: pytest.MonkeyPatch) -> None:
    may = Access.may

    def remembered(self: Access, *about: Any, **more: Any) -> bool:
        if self._generation != -1:
            self._generation = self._authorizer.generation()
        return may(self, *about, **more)

    patch.setattr(Access, "may", remembered)


def a_deleted_user_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SaslSession, "is_revoked", lambda _: False)


def a_deleted_user_logs_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Users, "_forget", lambda *_: None)


def who_was_added_again_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server, "is_still_there", lambda credentials, user, *_: bool(credentials.of(user)))


def the_first_mechanisms_password_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Users, "set_last", lambda self, user: min(self.of(user), default=None))


def a_fetch_that_waited_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "_may_still_read", lambda *_: True)


def acls_are_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AclIndex, "remove", lambda *_: None)


def a_deny_counts_for_nothing(patch: pytest.MonkeyPatch) -> None:
    rights = AclIndex.rights

    def without_denials(self: AclIndex, *about: Any) -> tuple[int, int, bool]:
        allowed, _, named = rights(self, *about)
        return allowed, 0, named

    patch.setattr(AclIndex, "rights", without_denials)


def new_acls_are_not_learned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AclIndex, "add", lambda *_: None)


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "nothing is re-read": (nothing_is_re_read, 0),
    "decisions are remembered for ever": (decisions_are_remembered_for_ever, 0),
    "connections remember their rights": (connections_remember_their_rights, 1),
    "a deleted user stays": (a_deleted_user_stays, 0),
    "a deleted user logs in": (a_deleted_user_logs_in, 0),
    "who was added again stays": (who_was_added_again_stays, 2),
    "the first mechanism's password counts": (the_first_mechanisms_password_counts, 2),
    "a fetch that waited is not asked again": (a_fetch_that_waited_is_not_asked_again, 1),
    "ACLs are not forgotten": (acls_are_not_forgotten, 1),
    "a DENY counts for nothing": (a_deny_counts_for_nothing, 1),
    "new ACLs are not learned": (new_acls_are_not_learned, 3),
}
