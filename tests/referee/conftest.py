"""The referee's cases run on the server of all client tests."""

from tests.services.fixtures import no_turn_is_long

__all__ = ["no_turn_is_long"]
