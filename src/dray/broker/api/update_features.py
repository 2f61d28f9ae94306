"""UpdateFeatures (57), versions 0 to 2: features are fixed, each at the level that ApiVersions tells.

An update to the level that is there is done. Any other is an INVALID_UPDATE_VERSION of the whole request, as
Kafka refuses one that it cannot follow.

- v2: the features of an update that is done are no longer listed.
"""

from __future__ import annotations

from typing import Final

from dray.base.runtime import cut
from dray.broker.api.shared import Context, Feature, handles
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_KINDS: Final = (1, 2, 3)  # upgrade, safe downgrade, unsafe downgrade
_LISTED_BELOW: Final = 2


@handles(UpdateFeaturesRequest, 0, 2, checks={ALTER_CLUSTER: Denial.REQUEST})
async def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not context.may(ALTER_CLUSTER):
        return UpdateFeaturesResponse(error_code=ALTER_CLUSTER.refusal, error_message=ALTER_CLUSTER.reason)
    features = {feature.name: feature for feature in context.services.settings.features}
    for update in request.feature_updates:
        fault = _fault(features.get(update.feature), update)
        if fault is not None:
            return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=fault)
    response = UpdateFeaturesResponse(error_message=None)
    if context.version < _LISTED_BELOW:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    return response


def _fault(feature: Feature | None, update: FeatureUpdateKey) -> str | None:
    asked = f"Invalid update version {update.max_version_level} for feature {cut(update.feature)}."
    if feature is None:
        return f"{asked} There is no such feature here."
    if update.upgrade_type not in _KINDS:
        return f"{asked} Unknown kind of update {update.upgrade_type}."
    if update.max_version_level != feature.finalized:
        return f"{asked} It is at {feature.finalized}, and features do not change here."
    return None
