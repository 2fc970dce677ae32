import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends the letters with Kafka's own client, once per codec, and prints what it reads back; or only reads. */
public final class Letters {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final int PARTITIONS = 2;
    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], prefix = args[1];
        List<JsonNode> letters = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[2]))) {
            letters.add(JSON.readTree(line));
        }
        if (args.length > 3 && args[3].equals("read")) {
            CODECS.forEach(codec -> read(bootstrap, prefix + "-" + codec, letters.size()));
            return;
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String codec : CODECS) {
                String topic = prefix + "-" + codec;
                admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
                send(bootstrap, topic, codec, letters);
                read(bootstrap, topic, letters.size());
            }
            administer(admin, prefix + "-none", letters);
        }
    }

    private static void send(String bootstrap, String topic, String codec, List<JsonNode> letters) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "acks", "all",
            "enable.idempotence", "true",
            "compression.type", codec);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            var sent = letters.stream().map(letter -> producer.send(record(topic, letter))).toList();
            producer.flush();
            sent.forEach(Letters::await);
        }
    }

    private static void read(String bootstrap, String topic, int count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            var partitions = consumer.partitionsFor(topic).stream()
                .map(known -> new TopicPartition(topic, known.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (int read = 0; read < count; ) {
                var records = consumer.poll(PATIENCE);
                check(!records.isEmpty(), topic + " ended after " + read + " records");
                records.forEach(Letters::print);
                read += records.count();
            }
        }
    }

    /** What an application asks of Admin beside creating topics. */
    private static void administer(Admin admin, String topic, List<JsonNode> letters) throws Exception {
        var first = new TopicPartition(topic, 0);
        long ofFirst = letters.stream().filter(letter -> letter.get("partition").asInt() == 0).count();
        check(admin.describeCluster().controller().get() != null, "no controller");
        check(admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset() == 0, "earliest");
        check(admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset() == ofFirst, "latest");
        check(admin.listOffsets(Map.of(first, OffsetSpec.maxTimestamp())).all().get().get(first).offset() == ofFirst - 1, "max timestamp");
        long third = letters.get(4).get("timestamp").asLong();
        check(admin.listOffsets(Map.of(first, OffsetSpec.forTimestamp(third))).all().get().get(first).offset() == 2, "by timestamp");
        check(!admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().isEmpty(), "no producer described");
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 1))).all().get();
        var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        check(described.partitions().size() == PARTITIONS + 1, "a partition was added, " + described);
        admin.deleteTopics(List.of(topic)).all().get();
        while (admin.listTopics().names().get().contains(topic)) {
            Thread.onSpinWait(); // brokers may learn of it a moment later; the harness bounds the wait
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode letter) {
        var record = new ProducerRecord<>(
            topic, letter.get("partition").asInt(), letter.get("timestamp").asLong(),
            unhex(letter.get("key")), unhex(letter.get("value")));
        letter.get("headers").forEach(header -> record.headers().add(header.get(0).asText(), unhex(header.get(1))));
        return record;
    }

    private static void print(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode()
            .put("topic", record.topic()).put("partition", record.partition())
            .put("offset", record.offset()).put("timestamp", record.timestamp())
            .put("key", hex(record.key())).put("value", hex(record.value()));
        var headers = line.putArray("headers");
        record.headers().forEach(header -> headers.addArray().add(header.key()).add(hex(header.value())));
        System.out.println(line);
    }

    private static void await(java.util.concurrent.Future<?> sent) {
        try {
            sent.get();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    private static byte[] unhex(JsonNode text) {
        return text.isNull() ? null : HexFormat.of().parseHex(text.asText());
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
