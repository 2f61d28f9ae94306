import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Kafka's own assignors: one group per line of standard input, one assignment per line of standard output.
 *
 * A group is "assignor;1 if all asked the same;topic:count,...;member|instance|topic,...|topic:partition,... ...",
 * with topics as "high/low". Members come in the order in which Kafka shall see them.
 */
public final class AssignorReferee {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(";", -1)));
        }
    }

    private static String answer(String[] fields) {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String topic : split(fields[2], ",")) {
            String[] parts = topic.split(":");
            counts.put(uuid(parts[0]), Integer.parseInt(parts[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (String member : split(fields[3], " ")) {
            String[] parts = member.split("\\|", -1);
            Set<Uuid> asked = new LinkedHashSet<>();
            for (String topic : split(parts[2], ",")) {
                asked.add(uuid(topic));
            }
            Map<Uuid, Set<Integer>> previous = new LinkedHashMap<>();
            for (String pair : split(parts[3], ",")) {
                String[] halves = pair.split(":");
                int partition = Integer.parseInt(halves[1]);
                previous.computeIfAbsent(uuid(halves[0]), id -> new TreeSet<>()).add(partition);
                owners.computeIfAbsent(uuid(halves[0]), id -> new HashMap<>()).put(partition, parts[0]);
            }
            members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]),
                asked,
                new Assignment(Collections.unmodifiableMap(previous))));
        }
        SubscriptionType type = fields[1].equals("1") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            fields[0].equals("uniform") ? new UniformAssignor() : new RangeAssignor();
        Map<String, MemberAssignment> assigned =
            assignor.assign(new GroupSpecImpl(Collections.unmodifiableMap(members), type, owners), describer(counts)).members();
        StringBuilder answer = new StringBuilder();
        for (String member : members.keySet()) {
            Set<String> pairs = new TreeSet<>();
            if (assigned.containsKey(member)) {
                assigned.get(member).partitions().forEach((id, partitions) -> partitions.forEach(partition ->
                    pairs.add(id.getMostSignificantBits() + "/" + id.getLeastSignificantBits() + ":" + partition)));
            }
            answer.append(member).append("=").append(String.join(",", pairs)).append(" ");
        }
        return answer.toString();
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    private static String[] split(String text, String separator) {
        return text.isEmpty() ? new String[0] : text.split(separator);
    }

    private static Uuid uuid(String text) {
        String[] halves = text.split("/");
        return new Uuid(Long.parseLong(halves[0]), Long.parseLong(halves[1]));
    }
}
