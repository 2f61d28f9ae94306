"""DeleteAcls (31), versions 1 to 3: everything that each filter matches, and what that was.

A filter that is there twice matches nothing more the second time.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, RefuseConnection, handles
from dray.broker.api.shared.acls import DISABLED, filter_of
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.broker.security.key_follower import SecurityUnavailable
from dray.kafka.acls import AclBinding, text_of
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

_AT_ONCE: Final = 100


@handles(DeleteAclsRequest, 1, 3, checks={ALTER_CLUSTER: Denial.RESOURCE}, most_elements=4000)
async def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    wanted = [
        filter_of(
            each.resource_type_filter,
            each.pattern_type_filter,
            each.resource_name_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]
    if any(
        0 in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        for each in request.filters
    ):
        raise RefuseConnection("DeleteAcls with an UNKNOWN element in a filter")
    acls = context.services.acls
    if acls is None:
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(*DISABLED) for _ in wanted])
    if not context.may_change(ALTER_CLUSTER, (f"delete {text_of(each)}" for each in wanted)):
        refused = DeleteAclsFilterResult(ALTER_CLUSTER.refusal, ALTER_CLUSTER.reason)
        return DeleteAclsResponse(filter_results=[refused for _ in wanted])
    once = list(dict.fromkeys(wanted))
    try:
        found = await acls.delete(once)  # one with an unknown element matches nothing
    except SecurityUnavailable as error:
        failed = DeleteAclsFilterResult(ErrorCode.REQUEST_TIMED_OUT, str(error))
        return DeleteAclsResponse(filter_results=[failed for _ in wanted])
    matched = dict(zip(once, found, strict=True))
    response = DeleteAclsResponse()
    for each in wanted:
        bindings = sorted(matched.pop(each, ()))
        result = [
            DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, "The filter has an unknown element.")
            if each.is_unknown
            else DeleteAclsFilterResult(ErrorCode.NONE, None, [_deleted(one) for one in bindings])
        ]
        if len(bindings) > _AT_ONCE:
            await context.large.write(result)
        response.filter_results += result
    return response


def _deleted(each: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=each.resource_type,
        resource_name=each.name,
        pattern_type=each.pattern_type,
        principal=each.principal,
        host=each.host,
        operation=each.operation,
        permission_type=each.permission,
        error_message=None,
    )
