"""CreateAcls (30), versions 1 to 3: each ACL is judged alone; one that exists is created once more without
harm."""

from __future__ import annotations

from dray.broker.api.shared import Context, RefuseConnection, handles
from dray.broker.api.shared.acls import DISABLED, binding
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.broker.security.key_follower import SecurityUnavailable
from dray.kafka.acls import AclBinding, fault_of, text_of
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(CreateAclsRequest, 1, 3, checks={ALTER_CLUSTER: Denial.RESOURCE}, most_elements=4000)
async def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    wanted = [
        binding(
            each.resource_type,
            each.resource_pattern_type,
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in request.creations
    ]
    if any(
        0 in (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        for each in request.creations
    ):
        raise RefuseConnection("CreateAcls with an UNKNOWN element")
    acls = context.services.acls
    if acls is None:
        return CreateAclsResponse(results=[AclCreationResult(*DISABLED) for _ in wanted])
    if not context.may_change(ALTER_CLUSTER, (f"add {text_of(each)}" for each in wanted)):
        refused = AclCreationResult(ALTER_CLUSTER.refusal, ALTER_CLUSTER.reason)
        return CreateAclsResponse(results=[refused for _ in wanted])
    faults = [fault_of(each) for each in wanted]
    good: list[AclBinding] = [each for each, fault in zip(wanted, faults, strict=True) if fault is None]
    outcome = AclCreationResult(ErrorCode.NONE, None)
    try:
        await acls.create(good)
    except SecurityUnavailable as error:
        outcome = AclCreationResult(ErrorCode.REQUEST_TIMED_OUT, str(error))
    return CreateAclsResponse(
        results=[
            outcome if fault is None else AclCreationResult(ErrorCode.INVALID_REQUEST, fault)
            for fault in faults
        ]
    )
