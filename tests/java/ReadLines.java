import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * ReadLines BOOTSTRAP GROUP PROTOCOL ISOLATION FETCH_BYTES TOPIC...: the only member of a group, which reads on as it
 * is told by lines on stdin, and stands still in between: see tests/services/clients/line_reader.py.
 */
public final class ReadLines {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final PrintWriter output = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out)));
    private final Map<TopicPartition, Long> next = new HashMap<>();

    private ReadLines(Map<String, Object> settings) {
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[1],
                "group.protocol", arguments[2],
                "isolation.level", arguments[3],
                "max.partition.fetch.bytes", arguments[4],
                "max.poll.records", "1",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "check.crcs", "true");
        new ReadLines(settings).run(Arrays.asList(arguments).subList(5, arguments.length));
    }

    private void run(List<String> topics) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (consumer) {
            consumer.subscribe(topics);
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split("\t");
                Map<TopicPartition, Long> numbers = new HashMap<>();
                for (int position = 1; position < words.length; position += 3) {
                    TopicPartition place = new TopicPartition(words[position], Integer.parseInt(words[position + 1]));
                    numbers.put(place, Long.parseLong(words[position + 2]));
                }
                switch (words[0]) {
                    case "read" -> read(numbers);
                    case "seek" -> numbers.forEach(this::seek);
                    case "times" -> times(numbers);
                    default -> throw new IllegalArgumentException(line);
                }
                output.println(".");
                output.flush();
            }
        }
    }

    private void read(Map<TopicPartition, Long> ends) {
        Set<TopicPartition> wanted = new HashSet<>(ends.keySet());
        wanted.removeIf(place -> next.getOrDefault(place, 0L) >= ends.get(place));
        Set<TopicPartition> paused = new HashSet<>(consumer.paused());
        paused.retainAll(wanted);
        consumer.resume(paused);
        while (!wanted.isEmpty()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                output.println(place.topic() + "\t" + place.partition() + "\t" + Lines.of(record));
                next.put(place, record.offset() + 1);
                if (record.offset() + 1 >= ends.get(place)) {
                    consumer.pause(Set.of(place));
                    wanted.remove(place);
                }
            }
        }
    }

    private void seek(TopicPartition place, long offset) {
        consumer.seek(place, offset);
        next.put(place, offset);
    }

    private void times(Map<TopicPartition, Long> times) {
        Map<TopicPartition, OffsetAndTimestamp> answers = consumer.offsetsForTimes(times);
        for (TopicPartition place : times.keySet()) {
            OffsetAndTimestamp found = answers.get(place);
            long offset = found == null ? -1 : found.offset();
            long timestamp = found == null ? -1 : found.timestamp();
            output.println(place.topic() + "\t" + place.partition() + "\t" + offset + "\t" + timestamp);
        }
    }
}
