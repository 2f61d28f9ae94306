"""SaslAuthenticate (36), versions 0 to 2: ILLEGAL_SASL_STATE where no handshake came before, as with
Kafka."""

from __future__ import annotations

from dray.broker.api.shared import NO_CHECKS, Context, handles
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(SaslAuthenticateRequest, 0, 2, checks=NO_CHECKS)
async def handle(_context: Context, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
