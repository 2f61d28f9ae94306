"""DeleteAcls (31), versions 1 to 3: everything that each filter matches, and what that was."""

from __future__ import annotations

from dray.api.shared import Context, RefuseConnection, handles
from dray.api.shared.acls import DISABLED, filter_of
from dray.api.shared.checks import ALTER_CLUSTER, Denial
from dray.protocol import ErrorCode
from dray.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dray.security.acls.model import AclBinding, text_of
from dray.security.faults import SecurityUnavailable


@handles(DeleteAclsRequest, 1, 3, checks={ALTER_CLUSTER: Denial.RESOURCE})
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
    try:
        matched = await acls.delete(wanted)  # one with an unknown element matches nothing
    except SecurityUnavailable as error:
        failed = DeleteAclsFilterResult(ErrorCode.REQUEST_TIMED_OUT, str(error))
        return DeleteAclsResponse(filter_results=[failed for _ in wanted])
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, "The filter has an unknown element.")
            if each.is_unknown
            else DeleteAclsFilterResult(ErrorCode.NONE, None, [_deleted(one) for one in sorted(found)])
            for each, found in zip(wanted, matched, strict=True)
        ]
    )


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
