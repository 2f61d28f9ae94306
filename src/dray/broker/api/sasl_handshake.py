"""SaslHandshake (17), versions 0 and 1: ILLEGAL_SASL_STATE on a listener without authentication, as with
Kafka."""

from __future__ import annotations

from dray.broker.api.shared import NO_CHECKS, Context, handles
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, 0, 1, checks=NO_CHECKS)
async def handle(_context: Context, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
