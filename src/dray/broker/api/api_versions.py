"""ApiVersions (18), versions 0 to 4: which APIs and versions this broker serves.

The list is the dispatcher's own table, so that nothing is advertised that is not served. The response
header is always the oldest one (the protocol room sees to it). A version above ours is answered as v0 with
UNSUPPORTED_VERSION and the range of this API alone, so that the client can ask again.

- v3: the client names itself, which is remembered. A malformed name or version is an INVALID_REQUEST.
- v4: features whose least version is 0 are listed too. Older clients refuse them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dray.broker.api.shared import NO_CHECKS, Context, VersionRange, handles
from dray.kafka.protocol import ApiKey, ErrorCode
from dray.kafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE: Final = "what the client calls its software"
"""The key in a connection's state. Empty if the client does not name its software."""

_LONGEST_NAME: Final = 64
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, 0, 4, checks=NO_CHECKS)
async def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.connection.state[SOFTWARE] = request.client_software_name[:_LONGEST_NAME]
    features = [
        feature
        for feature in context.services.settings.features
        if context.version >= 4 or feature.min_version > 0
    ]
    return ApiVersionsResponse(
        api_keys=_ranges(context.advertised),
        supported_features=[
            SupportedFeatureKey(
                name=feature.name, min_version=feature.min_version, max_version=feature.max_version
            )
            for feature in features
        ],
        finalized_features_epoch=0 if features else -1,
        finalized_features=[
            FinalizedFeatureKey(
                name=feature.name, max_version_level=feature.finalized, min_version_level=feature.finalized
            )
            for feature in features
        ],
    )


def unsupported(advertised: Sequence[VersionRange]) -> ApiVersionsResponse:
    """The answer, to be encoded as v0, to a version of ApiVersions that is not served."""
    own = [versions for versions in advertised if versions.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(own))


def _ranges(advertised: Sequence[VersionRange]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=versions.api_key, min_version=versions.first, max_version=versions.last)
        for versions in advertised
    ]
