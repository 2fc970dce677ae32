import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions with Kafka's own client, in the flow that the broker offers it. */
public final class Transactions {
    private static final int COUNT = 30, AT_ONCE = 10;
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        String prefix = args[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String name : List.of("-in", "-out", "-fenced", "-late")) {
                admin.createTopics(List.of(new NewTopic(prefix + name, 1, (short) 1))).all().get();
            }
            transform(prefix);
            fence(admin, prefix);
            timeOut(prefix);
        }
    }

    /** Read, process, write: every second attempt is aborted, and comes again. */
    private static void transform(String prefix) throws Exception {
        var numbers = IntStream.range(0, COUNT).mapToObj(String::valueOf).toList();
        try (var filling = producer(null, 60_000)) {
            numbers.forEach(number -> filling.send(new ProducerRecord<>(prefix + "-in", number)));
        }
        int done = 0;
        for (int attempt = 0; done < COUNT; attempt++) {
            try (var consumer = consumer(prefix + "-group"); var producer = producer(prefix + "-id", 60_000)) {
                producer.initTransactions();
                consumer.subscribe(List.of(prefix + "-in"));
                done += transformOnce(consumer, producer, prefix, attempt % 2 == 1);
            }
        }
        var doubled = numbers.stream().map(number -> number + number).toList();
        check(readCommitted(prefix + "-out", COUNT).equals(doubled), "each number once, in order");
    }

    private static int transformOnce(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String prefix, boolean commits) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        var records = consumer.poll(PATIENCE);
        check(!records.isEmpty(), "nothing came");
        producer.beginTransaction();
        for (var record : records) {
            producer.send(new ProducerRecord<>(prefix + "-out", record.value() + record.value()));
            positions.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        if (commits) {
            producer.commitTransaction();
            return records.count();
        }
        producer.abortTransaction();
        return 0;
    }

    /** A second producer under the same id ends what the first has begun, and the first. */
    private static void fence(Admin admin, String prefix) throws Exception {
        String topic = prefix + "-fenced", id = prefix + "-shared";
        try (var first = producer(id, 60_000); var second = producer(id, 60_000)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "first")).get();
            var open = admin.describeTransactions(List.of(id)).description(id).get();
            check(open.state() == TransactionState.ONGOING, "it is " + open.state());
            check(open.topicPartitions().contains(new TopicPartition(topic, 0)), "it is in " + open.topicPartitions());
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "second"));
            refused(first::commitTransaction);
            second.commitTransaction();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "third"));
            second.commitTransaction();
        }
        check(readCommitted(topic, 2).equals(List.of("second", "third")), "the first is gone");
        check(admin.listTransactions().all().get().stream().anyMatch(one -> one.transactionalId().equals(id)), "not listed");
    }

    /** What takes longer than it may is aborted, and lets readers pass. */
    private static void timeOut(String prefix) throws Exception {
        String topic = prefix + "-late";
        try (var late = producer(prefix + "-late-id", 500); var prompt = producer(prefix + "-prompt-id", 60_000)) {
            late.initTransactions();
            late.beginTransaction();
            late.send(new ProducerRecord<>(topic, "late")).get();
            prompt.initTransactions();
            prompt.beginTransaction();
            prompt.send(new ProducerRecord<>(topic, "prompt"));
            prompt.commitTransaction();
            check(readCommitted(topic, 1).equals(List.of("prompt")), "the late one is shown");
            refused(late::commitTransaction);
        }
    }

    private static void refused(Runnable asked) {
        try {
            asked.run();
        } catch (KafkaException refusal) {
            return; // which one depends on the request that is answered first
        }
        throw new IllegalStateException("a producer that was fenced has committed");
    }

    private static List<String> readCommitted(String topic, int count) {
        List<String> values = new ArrayList<>();
        try (var consumer = consumer(null)) {
            var only = List.of(new TopicPartition(topic, 0));
            consumer.assign(only);
            consumer.seekToBeginning(only);
            while (values.size() < count) {
                var records = consumer.poll(PATIENCE);
                check(!records.isEmpty(), topic + " ended after " + values);
                records.forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    private static KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        if (id != null) {
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", timeoutMs);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "max.poll.records", AT_ONCE));
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
