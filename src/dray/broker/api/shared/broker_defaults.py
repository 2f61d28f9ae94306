# ruff: noqa: E501
"""The configs of Apache Kafka 4.2's brokers: DescribeConfigs' number for the type, and the default,
if there is one. Written by tools/generate_broker_configs.py: do not edit.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class BrokerDefault(NamedTuple):
    type: int
    value: str | None


def _parse(line: str) -> tuple[str, BrokerDefault]:
    name, kind, *value = line.split(" ", 2)
    return name, BrokerDefault(int(kind), value[0].strip("'") if value else None)


_LINES: Final = """\
add.partitions.to.txn.retry.backoff.max.ms 3 100
add.partitions.to.txn.retry.backoff.ms 3 20
advertised.listeners 7
alter.config.policy.class.name 8
alter.log.dirs.replication.quota.window.num 3 11
alter.log.dirs.replication.quota.window.size.seconds 3 1
authorizer.class.name 2 ''
auto.create.topics.enable 1 true
auto.leader.rebalance.enable 1 true
background.threads 3 10
broker.heartbeat.interval.ms 3 2000
broker.id 3 -1
broker.rack 2
broker.session.timeout.ms 3 9000
client.quota.callback.class 8
compression.gzip.level 3 -1
compression.lz4.level 3 9
compression.type 2 producer
compression.zstd.level 3 3
config.providers 7 ''
connection.failed.authentication.delay.ms 3 100
connections.max.idle.ms 5 600000
connections.max.reauth.ms 5 0
controlled.shutdown.enable 1 true
controller.listener.names 7
controller.quorum.append.linger.ms 3 25
controller.quorum.auto.join.enable 1 false
controller.quorum.bootstrap.servers 7 ''
controller.quorum.election.backoff.max.ms 3 1000
controller.quorum.election.timeout.ms 3 1000
controller.quorum.fetch.timeout.ms 3 2000
controller.quorum.request.timeout.ms 3 2000
controller.quorum.retry.backoff.ms 3 20
controller.quorum.voters 7 ''
controller.quota.window.num 3 11
controller.quota.window.size.seconds 3 1
controller.socket.timeout.ms 3 30000
create.topic.policy.class.name 8
default.replication.factor 3 1
delegation.token.expiry.check.interval.ms 5 3600000
delegation.token.expiry.time.ms 5 86400000
delegation.token.max.lifetime.ms 5 604800000
delegation.token.secret.key 9
delete.records.purgatory.purge.interval.requests 3 1
delete.topic.enable 1 true
early.start.listeners 7
fetch.max.bytes 3 57671680
fetch.purgatory.purge.interval.requests 3 1000
group.consumer.assignors 7 uniform,range
group.consumer.heartbeat.interval.ms 3 5000
group.consumer.max.heartbeat.interval.ms 3 15000
group.consumer.max.session.timeout.ms 3 60000
group.consumer.max.size 3 2147483647
group.consumer.migration.policy 2 bidirectional
group.consumer.min.heartbeat.interval.ms 3 5000
group.consumer.min.session.timeout.ms 3 45000
group.consumer.session.timeout.ms 3 45000
group.coordinator.append.linger.ms 3 -1
group.coordinator.rebalance.protocols 7 classic,consumer,streams
group.coordinator.threads 3 4
group.initial.rebalance.delay.ms 3 3000
group.max.session.timeout.ms 3 1800000
group.max.size 3 2147483647
group.min.session.timeout.ms 3 6000
group.share.assignors 7 simple
group.share.delivery.count.limit 3 5
group.share.heartbeat.interval.ms 3 5000
group.share.max.heartbeat.interval.ms 3 15000
group.share.max.record.lock.duration.ms 3 60000
group.share.max.session.timeout.ms 3 60000
group.share.max.share.sessions 3 2000
group.share.max.size 3 200
group.share.min.heartbeat.interval.ms 3 5000
group.share.min.record.lock.duration.ms 3 15000
group.share.min.session.timeout.ms 3 45000
group.share.partition.max.record.locks 3 2000
group.share.record.lock.duration.ms 3 30000
group.share.session.timeout.ms 3 45000
group.streams.heartbeat.interval.ms 3 5000
group.streams.initial.rebalance.delay.ms 3 3000
group.streams.max.heartbeat.interval.ms 3 15000
group.streams.max.session.timeout.ms 3 60000
group.streams.max.size 3 2147483647
group.streams.max.standby.replicas 3 2
group.streams.min.heartbeat.interval.ms 3 5000
group.streams.min.session.timeout.ms 3 45000
group.streams.num.standby.replicas 3 0
group.streams.session.timeout.ms 3 45000
initial.broker.registration.timeout.ms 3 60000
inter.broker.listener.name 2
kafka.metrics.polling.interval.secs 3 10
kafka.metrics.reporters 7 ''
leader.imbalance.check.interval.seconds 5 300
listener.security.protocol.map 2 SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners 7 PLAINTEXT://:9092
log.cleaner.backoff.ms 5 15000
log.cleaner.dedupe.buffer.size 5 134217728
log.cleaner.delete.retention.ms 5 86400000
log.cleaner.enable 1 true
log.cleaner.io.buffer.load.factor 6 0.9
log.cleaner.io.buffer.size 3 524288
log.cleaner.io.max.bytes.per.second 6 1.7976931348623157E308
log.cleaner.max.compaction.lag.ms 5 9223372036854775807
log.cleaner.min.cleanable.ratio 6 0.5
log.cleaner.min.compaction.lag.ms 5 0
log.cleaner.threads 3 1
log.cleanup.policy 7 delete
log.dir 7 /tmp/kafka-logs
log.dir.failure.timeout.ms 5 30000
log.dirs 7
log.flush.interval.messages 5 9223372036854775807
log.flush.interval.ms 5
log.flush.offset.checkpoint.interval.ms 3 60000
log.flush.scheduler.interval.ms 5 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms 3 60000
log.index.interval.bytes 3 4096
log.index.size.max.bytes 3 10485760
log.local.retention.bytes 5 -2
log.local.retention.ms 5 -2
log.message.timestamp.after.max.ms 5 3600000
log.message.timestamp.before.max.ms 5 9223372036854775807
log.message.timestamp.type 2 CreateTime
log.preallocate 1 false
log.retention.bytes 5 -1
log.retention.check.interval.ms 5 300000
log.retention.hours 3 168
log.retention.minutes 3
log.retention.ms 5
log.roll.hours 3 168
log.roll.jitter.hours 3 0
log.roll.jitter.ms 5
log.roll.ms 5
log.segment.bytes 3 1073741824
log.segment.delete.delay.ms 5 60000
max.connection.creation.rate 3 2147483647
max.connections 3 2147483647
max.connections.per.ip 3 2147483647
max.connections.per.ip.overrides 2 ''
max.incremental.fetch.session.cache.slots 3 1000
max.request.partition.size.limit 3 2000
message.max.bytes 3 1048588
metadata.log.dir 2
metadata.log.max.record.bytes.between.snapshots 5 20971520
metadata.log.max.snapshot.interval.ms 5 3600000
metadata.log.segment.bytes 3 1073741824
metadata.log.segment.ms 5 604800000
metadata.max.idle.interval.ms 3 500
metadata.max.retention.bytes 5 104857600
metadata.max.retention.ms 5 604800000
metric.reporters 7 org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples 3 2
metrics.recording.level 2 INFO
metrics.sample.window.ms 5 30000
min.insync.replicas 3 1
node.id 3
num.io.threads 3 8
num.network.threads 3 3
num.partitions 3 1
num.recovery.threads.per.data.dir 3 2
num.replica.alter.log.dirs.threads 3
num.replica.fetchers 3 1
offset.metadata.max.bytes 3 4096
offsets.commit.timeout.ms 3 5000
offsets.load.buffer.size 3 5242880
offsets.retention.check.interval.ms 5 600000
offsets.retention.minutes 3 10080
offsets.topic.compression.codec 3 0
offsets.topic.num.partitions 3 50
offsets.topic.replication.factor 4 3
offsets.topic.segment.bytes 3 104857600
principal.builder.class 8 org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles 7
producer.id.expiration.ms 3 86400000
producer.purgatory.purge.interval.requests 3 1000
queued.max.request.bytes 5 -1
queued.max.requests 3 500
quota.window.num 3 11
quota.window.size.seconds 3 1
remote.fetch.max.wait.ms 3 500
remote.list.offsets.request.timeout.ms 5 30000
remote.log.index.file.cache.total.size.bytes 5 1073741824
remote.log.manager.copier.thread.pool.size 3 10
remote.log.manager.copy.max.bytes.per.second 5 9223372036854775807
remote.log.manager.copy.quota.window.num 3 11
remote.log.manager.copy.quota.window.size.seconds 3 1
remote.log.manager.expiration.thread.pool.size 3 10
remote.log.manager.fetch.max.bytes.per.second 5 9223372036854775807
remote.log.manager.fetch.quota.window.num 3 11
remote.log.manager.fetch.quota.window.size.seconds 3 1
remote.log.manager.follower.thread.pool.size 3 2
remote.log.manager.task.interval.ms 5 30000
remote.log.manager.thread.pool.size 3 2
remote.log.metadata.custom.metadata.max.bytes 3 128
remote.log.metadata.manager.class.name 2 org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path 2
remote.log.metadata.manager.impl.prefix 2 rlmm.config.
remote.log.metadata.manager.listener.name 2
remote.log.reader.max.pending.tasks 3 100
remote.log.reader.threads 3 10
remote.log.storage.manager.class.name 2
remote.log.storage.manager.class.path 2
remote.log.storage.manager.impl.prefix 2 rsm.config.
remote.log.storage.system.enable 1 false
replica.fetch.backoff.ms 3 1000
replica.fetch.max.bytes 3 1048576
replica.fetch.min.bytes 3 1
replica.fetch.response.max.bytes 3 10485760
replica.fetch.wait.max.ms 3 500
replica.high.watermark.checkpoint.interval.ms 5 5000
replica.lag.time.max.ms 5 30000
replica.selector.class 2
replica.socket.receive.buffer.bytes 3 65536
replica.socket.timeout.ms 3 30000
replication.quota.window.num 3 11
replication.quota.window.size.seconds 3 1
request.timeout.ms 3 30000
sasl.client.callback.handler.class 8
sasl.enabled.mechanisms 7 GSSAPI
sasl.jaas.config 9
sasl.kerberos.kinit.cmd 2 /usr/bin/kinit
sasl.kerberos.min.time.before.relogin 5 60000
sasl.kerberos.principal.to.local.rules 7 DEFAULT
sasl.kerberos.service.name 2
sasl.kerberos.ticket.renew.jitter 6 0.05
sasl.kerberos.ticket.renew.window.factor 6 0.8
sasl.login.callback.handler.class 8
sasl.login.class 8
sasl.login.connect.timeout.ms 3
sasl.login.read.timeout.ms 3
sasl.login.refresh.buffer.seconds 4 300
sasl.login.refresh.min.period.seconds 4 60
sasl.login.refresh.window.factor 6 0.8
sasl.login.refresh.window.jitter 6 0.05
sasl.login.retry.backoff.max.ms 5 10000
sasl.login.retry.backoff.ms 5 100
sasl.mechanism.controller.protocol 2 GSSAPI
sasl.mechanism.inter.broker.protocol 2 GSSAPI
sasl.oauthbearer.assertion.algorithm 2 RS256
sasl.oauthbearer.assertion.claim.aud 2
sasl.oauthbearer.assertion.claim.exp.seconds 3 300
sasl.oauthbearer.assertion.claim.iss 2
sasl.oauthbearer.assertion.claim.jti.include 1 false
sasl.oauthbearer.assertion.claim.nbf.seconds 3 60
sasl.oauthbearer.assertion.claim.sub 2
sasl.oauthbearer.assertion.file 2
sasl.oauthbearer.assertion.private.key.file 2
sasl.oauthbearer.assertion.private.key.passphrase 9
sasl.oauthbearer.assertion.template.file 2
sasl.oauthbearer.client.credentials.client.id 2
sasl.oauthbearer.client.credentials.client.secret 9
sasl.oauthbearer.clock.skew.seconds 3 30
sasl.oauthbearer.expected.audience 7 ''
sasl.oauthbearer.expected.issuer 2
sasl.oauthbearer.jwks.endpoint.refresh.ms 5 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms 5 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms 5 100
sasl.oauthbearer.jwks.endpoint.url 2
sasl.oauthbearer.jwt.retriever.class 8 org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class 8 org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope 2
sasl.oauthbearer.scope.claim.name 2 scope
sasl.oauthbearer.sub.claim.name 2 sub
sasl.oauthbearer.token.endpoint.url 2
sasl.server.callback.handler.class 8
sasl.server.max.receive.size 3 524288
security.inter.broker.protocol 2 PLAINTEXT
security.providers 2
share.coordinator.append.linger.ms 3 -1
share.coordinator.load.buffer.size 3 5242880
share.coordinator.snapshot.update.records.per.snapshot 3 500
share.coordinator.state.topic.compression.codec 3 0
share.coordinator.state.topic.min.isr 4 2
share.coordinator.state.topic.num.partitions 3 50
share.coordinator.state.topic.replication.factor 4 3
share.coordinator.state.topic.segment.bytes 3 104857600
share.coordinator.threads 3 1
share.coordinator.write.timeout.ms 3 5000
share.fetch.purgatory.purge.interval.requests 3 1000
socket.connection.setup.timeout.max.ms 5 30000
socket.connection.setup.timeout.ms 5 10000
socket.listen.backlog.size 3 50
socket.receive.buffer.bytes 3 102400
socket.request.max.bytes 3 104857600
socket.send.buffer.bytes 3 102400
ssl.allow.dn.changes 1 false
ssl.allow.san.changes 1 false
ssl.cipher.suites 7 ''
ssl.client.auth 2 none
ssl.enabled.protocols 7 TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm 2 https
ssl.engine.factory.class 8
ssl.key.password 9
ssl.keymanager.algorithm 2 SunX509
ssl.keystore.certificate.chain 9
ssl.keystore.key 9
ssl.keystore.location 2
ssl.keystore.password 9
ssl.keystore.type 2 JKS
ssl.principal.mapping.rules 2 DEFAULT
ssl.protocol 2 TLSv1.3
ssl.provider 2
ssl.secure.random.implementation 2
ssl.trustmanager.algorithm 2 PKIX
ssl.truststore.certificates 9
ssl.truststore.location 2
ssl.truststore.password 9
ssl.truststore.type 2 JKS
telemetry.max.bytes 3 1048576
transaction.abort.timed.out.transaction.cleanup.interval.ms 3 10000
transaction.max.timeout.ms 3 900000
transaction.partition.verification.enable 1 true
transaction.remove.expired.transaction.cleanup.interval.ms 3 3600000
transaction.state.log.load.buffer.size 3 5242880
transaction.state.log.min.isr 3 2
transaction.state.log.num.partitions 3 50
transaction.state.log.replication.factor 4 3
transaction.state.log.segment.bytes 3 104857600
transaction.two.phase.commit.enable 1 false
transactional.id.expiration.ms 3 604800000
unclean.leader.election.enable 1 false
"""

BROKER_DEFAULTS: Final[dict[str, BrokerDefault]] = dict(_parse(line) for line in _LINES.splitlines())
