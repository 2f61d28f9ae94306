import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** AdminTour BOOTSTRAP TOPIC: one line "step=answer" per step; the test knows what each should say. */
public final class AdminTour {
    private static final int ATTEMPTS = 50;
    private final Admin admin;
    private final String topic;

    private AdminTour(Admin admin, String topic) {
        this.admin = admin;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "default.api.timeout.ms", "20000",
                "request.timeout.ms", "10000");
        try (Admin admin = Admin.create(settings)) {
            new AdminTour(admin, arguments[1]).run();
        }
    }

    private void run() throws Exception {
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "86400000"));
        say("nodes", get(admin.describeCluster().nodes()).size());
        say("controller", get(admin.describeCluster().controller()) != null);
        say("cluster id", !get(admin.describeCluster().clusterId()).isEmpty());
        say("validated", outcome(admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all()));
        say("absent", outcome(admin.describeTopics(List.of(topic)).allTopicNames()));
        say("created", outcome(admin.createTopics(List.of(wanted)).all()));
        say("created again", outcome(admin.createTopics(List.of(wanted)).all()));
        say("illegal name", outcome(admin.createTopics(List.of(new NewTopic("no spaces", 1, (short) 1))).all()));
        say("no partitions", outcome(admin.createTopics(List.of(new NewTopic(topic + "-0", 0, (short) 1))).all()));
        NewTopic odd = new NewTopic(topic + "-odd", 1, (short) 1).configs(Map.of("retention.ms", "soon"));
        say("bad config", outcome(admin.createTopics(List.of(odd)).all()));
        say("listed", until(true, () -> get(admin.listTopics().names()).contains(topic)));

        TopicDescription description = describe();
        Uuid id = description.topicId();
        say("partitions", description.partitions().size());
        say("by id", get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id).name().equals(topic));
        say("leader", description.partitions().get(0).leader() != null);

        say("retention.ms", config("retention.ms"));
        say("cleanup.policy", config("cleanup.policy"));
        alter(new AlterConfigOp(new ConfigEntry("retention.ms", "123456"), AlterConfigOp.OpType.SET));
        say("altered", until("123456", () -> config("retention.ms")));
        alter(new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE));
        say("reset", until("604800000", () -> config("retention.ms")));
        say("refused", outcome(admin.incrementalAlterConfigs(Map.of(resource(), List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all()));

        say("more partitions", outcome(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all()));
        say("partitions now", until(5, () -> describe().partitions().size()));
        say("same id", describe().topicId().equals(id));
        say("fewer partitions", outcome(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all()));

        TopicPartition first = new TopicPartition(topic, 0);
        say("earliest", offset(first, OffsetSpec.earliest()));
        say("latest", offset(first, OffsetSpec.latest()));
        say("max timestamp", offset(first, OffsetSpec.maxTimestamp()));
        say("for timestamp", offset(first, OffsetSpec.forTimestamp(0)));
        say("deleted records", get(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(0))).all()) == null);
        say("records out of range", outcome(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(9))).all()));

        askAsTools(first);

        say("deleted", outcome(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all()));
        say("deleted again", outcome(admin.deleteTopics(TopicCollection.ofTopicNames(List.of(topic))).all()));
        say("created anew", outcome(admin.createTopics(List.of(wanted)).all()));
        say("another id", until(true, () -> !describe().topicId().equals(id)));
        say("deleted for good", outcome(admin.deleteTopics(List.of(topic)).all()));
    }

    /** What tools ask for beside topics: the same answers from a Kafka without ACLs, quotas and transactions. */
    private void askAsTools(TopicPartition first) throws Exception {
        say("replicas in log dirs", until(5L, this::replicasInLogDirs));
        say("elected", electionOf(first));
        say("reassignments", get(admin.listPartitionReassignments().reassignments()).size());
        List<Integer> present = describe().partitions().get(0).replicas().stream().map(Node::id).toList();
        say("reassigned to where it is", outcome(admin.alterPartitionReassignments(
                Map.of(first, Optional.of(new NewPartitionReassignment(present)))).all()));
        say("reassigned to a stranger", outcome(admin.alterPartitionReassignments(
                Map.of(first, Optional.of(new NewPartitionReassignment(List.of(4711))))).all()));
        say("producers", get(admin.describeProducers(List.of(first)).partitionResult(first)).activeProducers().size());
        say("transactions", get(admin.listTransactions().all()).size());
        say("ACLs", outcome(admin.describeAcls(AclBindingFilter.ANY).values()));
        say("quotas", get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).size());
        say("credentials", get(admin.describeUserScramCredentials().all()).size());
        say("listed configs", get(admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC),
                new ListConfigResourcesOptions()).all()).contains(resource()));
        say("features updated", outcome(admin.updateFeatures(
                Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
                new UpdateFeaturesOptions()).all()));
        say("broker configs", get(admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.BROKER,
                get(admin.describeCluster().controller()).idString()))).all()).values().iterator().next()
                .get("advertised.listeners").value().startsWith("PLAINTEXT://"));
    }

    private long replicasInLogDirs() throws Exception {
        long told = 0;
        for (int node : get(admin.describeCluster().nodes()).stream().map(Node::id).toList()) {
            for (LogDirDescription directory : get(admin.describeLogDirs(List.of(node)).allDescriptions()).get(node).values()) {
                told += directory.replicaInfos().keySet().stream().filter(one -> one.topic().equals(topic)).count();
            }
        }
        return told;
    }

    private String electionOf(TopicPartition partition) throws Exception {
        return get(admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions())
                .get(partition).map(error -> error.getClass().getSimpleName()).orElse("done");
    }

    private static void say(String step, Object answer) {
        System.out.println(step + "=" + answer);
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }

    private static String outcome(KafkaFuture<?> future) throws Exception {
        try {
            get(future);
            return "done";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    /** Brokers learn of what another one has changed a moment later: ask until it shows, and say what is there. */
    private static <T> T until(T expected, Callable<T> question) throws Exception {
        T answer = question.call();
        for (int attempt = 0; attempt < ATTEMPTS && !answer.equals(expected); attempt++) {
            Thread.sleep(100);
            answer = question.call();
        }
        return answer;
    }

    /** A new topic shows up in the metadata a moment after it was created: ask until it does. */
    private TopicDescription describe() throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
            } catch (ExecutionException error) {
                if (attempt == ATTEMPTS) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    private ConfigResource resource() {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private String config(String name) throws Exception {
        Config config = get(admin.describeConfigs(List.of(resource())).all()).get(resource());
        return config.get(name).value();
    }

    private void alter(AlterConfigOp operation) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> operations = new HashMap<>();
        operations.put(resource(), List.of(operation));
        get(admin.incrementalAlterConfigs(operations).all());
    }

    private long offset(TopicPartition partition, OffsetSpec what) throws Exception {
        return get(admin.listOffsets(Map.of(partition, what)).all()).get(partition).offset();
    }
}
