import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One queue under load, by Kafka's own clients with their defaults: a producer with acks=all and
 * consumers of one share group at the same time, as threads of this process.
 *
 * <p>A message counts once the broker has said that its acknowledgement counts. The producer waits
 * while too many are on their way, so that it goes as fast as the consumers. After the measured time
 * it stops, and everything that it has sent must be acknowledged.
 *
 * <p>Takes name=value pairs; prints one JSON object.
 */
public final class QueueLoad {
    private static final long WHOLE_WITHIN_NS = 60_000_000_000L;

    private final Map<String, String> options = new HashMap<>();
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong stored = new AtomicLong();
    private final AtomicLong received = new AtomicLong();
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong read = new AtomicLong();
    private final AtomicBoolean producing = new AtomicBoolean(true);
    private final AtomicBoolean consuming = new AtomicBoolean(true);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    public static void main(String[] pairs) throws Exception {
        QueueLoad load = new QueueLoad();
        for (String pair : pairs) {
            String[] parts = pair.split("=", 2);
            load.options.put(parts[0], parts[1]);
        }
        System.out.println(load.run());
        System.exit(0);
    }

    private String run() throws Exception {
        prepare();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < number("consumers"); n++) {
            threads.add(start(this::consume));
        }
        boolean beside = number("beside") > 0;
        if (beside) {
            threads.add(start(this::readInGroup));
        }
        Thread producer = start(this::produce);

        await(() -> acknowledged.get() > 0, "nothing is acknowledged");
        sleep(number("warmup_ms"));
        long began = System.nanoTime();
        long before = acknowledged.get();
        long readBefore = read.get();
        sleep(number("measured_ms"));
        long counted = acknowledged.get() - before;
        long countedRead = read.get() - readBefore;
        double seconds = (System.nanoTime() - began) / 1e9;

        producing.set(false);
        producer.join();
        await(() -> acknowledged.get() >= stored.get() && (!beside || read.get() >= stored.get()),
              "not everything that was sent is acknowledged");
        consuming.set(false);
        for (Thread thread : threads) {
            thread.join();
        }
        return String.format(
            "{\"messages\": %d, \"seconds\": %.3f, \"messages_per_s\": %.1f, \"bytes\": %d, "
                + "\"read_per_s\": %.1f, \"stored\": %d, \"received\": %d, \"acknowledged\": %d, "
                + "\"read\": %d}",
            counted, seconds, counted / seconds, counted * number("size"), countedRead / seconds,
            stored.get(), received.get(), acknowledged.get(), read.get());
    }

    /** A topic, and a group that begins at the topic's beginning. */
    private void prepare() throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        try (Admin admin = Admin.create(settings)) {
            NewTopic topic = new NewTopic(options.get("topic"), (int) number("partitions"), (short) 1);
            admin.createTopics(List.of(topic)).all().get();
            List<AlterConfigOp> configs = new ArrayList<>();
            configs.add(set("share.auto.offset.reset", "earliest"));
            if (!options.get("order").equals("none")) {
                configs.add(set("share.order", options.get("order")));
            }
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, options.get("topic"));
            admin.incrementalAlterConfigs(Map.of(group, configs)).all().get();
        }
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private void produce() throws InterruptedException, ExecutionException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("acks", "all");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        Random chance = new Random(1);
        byte[] value = new byte[(int) number("size")];
        chance.nextBytes(value);
        byte[][] keys = new byte[(int) Math.max(number("keys"), 1)][];
        for (int n = 0; n < keys.length; n++) {
            keys[n] = String.format("key-%06d", n).getBytes();
        }
        long most = number("on_their_way");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            while (producing.get() && failure.get() == null) {
                if (sent.get() - acknowledged.get() > most) {
                    LockSupport.parkNanos(200_000);
                    continue;
                }
                byte[] key = keys.length > 1 ? keys[chance.nextInt(keys.length)] : null;
                sent.incrementAndGet();
                producer.send(new ProducerRecord<>(options.get("topic"), key, value), (where, error) -> {
                    if (error == null) {
                        stored.incrementAndGet();
                    } else {
                        failure.compareAndSet(null, error);
                    }
                });
            }
        }
    }

    private Properties reading(String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("group.id", group);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    /** Acknowledges what a poll gave by the next one, as the consumer does unless told otherwise. */
    private void consume() {
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(reading(options.get("topic")))) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                    return;
                }
                for (Set<Long> some : offsets.values()) {
                    acknowledged.addAndGet(some.size());
                }
            });
            consumer.subscribe(List.of(options.get("topic")));
            while (consuming.get() && failure.get() == null) {
                received.addAndGet(consumer.poll(Duration.ofMillis(200)).count());
            }
        }
    }

    private void readInGroup() {
        Properties settings = reading(options.get("topic") + "-readers");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(options.get("topic")));
            while (consuming.get() && failure.get() == null) {
                read.addAndGet(consumer.poll(Duration.ofMillis(200)).count());
            }
        }
    }

    // --- waiting ------------------------------------------------------------------------------

    private interface Work {
        void run() throws Exception;
    }

    private interface Question {
        boolean isTrue();
    }

    private Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                failure.compareAndSet(null, error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void await(Question question, String complaint) throws Exception {
        long deadline = System.nanoTime() + WHOLE_WITHIN_NS;
        while (!question.isTrue()) {
            check();
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(String.format(
                    "%s after a minute: %d stored, %d received, %d acknowledged, %d read in a group",
                    complaint, stored.get(), received.get(), acknowledged.get(), read.get()));
            }
            Thread.sleep(1);
        }
    }

    private void sleep(long ms) throws Exception {
        long until = System.nanoTime() + ms * 1_000_000;
        while (System.nanoTime() < until) {
            check();
            Thread.sleep(Math.min(20, ms));
        }
    }

    private void check() throws Exception {
        if (failure.get() != null) {
            throw new IllegalStateException("a client failed", failure.get());
        }
    }

    private long number(String name) {
        return Long.parseLong(options.get(name));
    }
}
