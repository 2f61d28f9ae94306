import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records as lines: offset, timestamp, its type, key, value, then every header's key and value, tabs between. */
final class Lines {
    private Lines() {}

    static String field(byte[] value) {
        return value == null ? "-" : "x" + HexFormat.of().formatHex(value);
    }

    static byte[] value(String field) {
        return field.equals("-") ? null : HexFormat.of().parseHex(field.substring(1));
    }

    static String of(ConsumerRecord<byte[], byte[]> record) {
        List<String> fields = new ArrayList<>();
        fields.add(Long.toString(record.offset()));
        fields.add(Long.toString(record.timestamp()));
        fields.add(record.timestampType().name);
        fields.add(field(record.key()));
        fields.add(field(record.value()));
        for (Header header : record.headers()) {
            fields.add(field(header.key().getBytes(StandardCharsets.UTF_8)));
            fields.add(field(header.value()));
        }
        return String.join("\t", fields);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, String line) {
        String[] fields = line.split("\t", -1);
        List<Header> headers = new ArrayList<>();
        for (int position = 5; position < fields.length; position += 2) {
            String key = new String(value(fields[position]), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(key, value(fields[position + 1])));
        }
        long timestamp = Long.parseLong(fields[1]);
        return new ProducerRecord<>(
                topic, partition, timestamp < 0 ? null : timestamp, value(fields[3]), value(fields[4]), headers);
    }
}
