import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** ProduceLines BOOTSTRAP TOPIC PARTITION CODEC IDEMPOTENT: records from stdin, their offsets to stdout. */
public final class ProduceLines {
    private ProduceLines() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "compression.type", arguments[3],
                "enable.idempotence", arguments[4],
                "acks", "all",
                "max.request.size", "20000000",
                "delivery.timeout.ms", "30000",
                "request.timeout.ms", "20000");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                answers.add(producer.send(Lines.record(arguments[1], Integer.parseInt(arguments[2]), line)));
            }
            for (Future<RecordMetadata> answer : answers) {
                System.out.println(answer.get(30, TimeUnit.SECONDS).offset());
            }
        }
    }
}
