/* rdload: one load on one broker through librdkafka, reported as one JSON line.
 *
 * What is true here, so that the broker and not this program is measured:
 *   - values are random bytes, no compression, no keys, partitions strictly in turn;
 *   - throughput loads never copy a value (they point into one random pool) and count a
 *     message only when the broker acknowledged it or the consumer received it;
 *   - produce asks the broker afterwards how many messages it holds ("stored");
 *   - latency is taken from the moment a message was *due*, not from when it was sent, so a
 *     stalled broker is charged for every message that had to wait (no coordinated omission).
 *
 * Usage: rdload create|produce|consume|tail|latency --bootstrap H:P --topic T [options]
 * Every librdkafka setting can be given with --set name=value.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define POOL_BYTES (8u << 20)
#define MAX_PARTITIONS 4096
#define MAX_SETTINGS 32
#define STALL_NS 60000000000LL /* nothing moved for a minute: give up, loudly */

static struct {
    const char *mode, *bootstrap, *topic, *acks;
    int partitions, replicas, sticky;
    int64_t count, size;
    double rate, seconds, warmup_seconds;
    const char *settings[MAX_SETTINGS];
    int settings_count;
} opt = {.bootstrap = "127.0.0.1:9092", .topic = "bench", .acks = "all", .partitions = 1, .replicas = 1,
         .count = 100000, .size = 1024, .rate = 12000, .seconds = 10, .warmup_seconds = 2};

static unsigned char pool[POOL_BYTES];
static int64_t failed;          /* delivery reports with an error */
static char first_failure[256];

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rdload: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(int64_t deadline_ns) {
    struct timespec t = {deadline_ns / 1000000000LL, deadline_ns % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static double own_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void fill_pool(void) {
    uint64_t x = 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; i < POOL_BYTES; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64 */
        memcpy(pool + i, &x, 8);
    }
}

/* A different stretch of the pool for every message; 4099 is prime, so they do not repeat soon. */
static void *value_of(int64_t i) {
    return pool + (uint64_t)i * 4099u % (POOL_BYTES - (uint64_t)opt.size);
}

/* ---- clients ---------------------------------------------------------------------------- */

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        die("%s", why);
}

static void apply_settings(rd_kafka_conf_t *conf, const char *prefix) {
    for (int i = 0; i < opt.settings_count; i++) {
        char name[128];
        const char *given = opt.settings[i], *equals = strchr(given, '=');
        if (!equals || (size_t)(equals - given) >= sizeof name)
            die("--set wants name=value, not %s", given);
        memcpy(name, given, (size_t)(equals - given));
        name[equals - given] = 0;
        if (!strncmp(name, prefix, strlen(prefix)))
            set(conf, name + strlen(prefix), equals + 1);
    }
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char why[512];
    set(conf, "bootstrap.servers", opt.bootstrap);
    set(conf, "socket.nagle.disable", "true");
    apply_settings(conf, type == RD_KAFKA_PRODUCER ? "producer." : "consumer.");
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        die("%s", why);
    return rk;
}

static void note_failure(rd_kafka_resp_err_t error) {
    if (!failed++)
        snprintf(first_failure, sizeof first_failure, "%s", rd_kafka_err2str(error));
}

static void on_failed_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    if (m->err)
        note_failure(m->err);
}

static rd_kafka_t *producer(void (*on_delivery)(rd_kafka_t *, const rd_kafka_message_t *, void *),
                            int only_errors) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", opt.acks);
    set(conf, "delivery.report.only.error", only_errors ? "true" : "false");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return client(RD_KAFKA_PRODUCER, conf);
}

static rd_kafka_topic_t *topic_of(rd_kafka_t *rk) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, opt.topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, rkt, &metadata, 10000);
    if (error) /* also opens the connection before the clock starts */
        die("metadata of %s: %s", opt.topic, rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return rkt;
}

/* A consumer that is assigned all partitions from their beginning: no group is involved. */
static rd_kafka_queue_t *start_consumer(rd_kafka_t **rk, rd_kafka_topic_t **rkt) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.auto.offset.store", "false");
    set(conf, "queued.min.messages", "1000000"); /* 2.0.2 pauses a full second when they are there */
    set(conf, "queued.max.messages.kbytes", "1048576");
    *rk = client(RD_KAFKA_CONSUMER, conf);
    *rkt = topic_of(*rk);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(*rk);
    for (int p = 0; p < opt.partitions; p++)
        if (rd_kafka_consume_start_queue(*rkt, p, RD_KAFKA_OFFSET_BEGINNING, queue))
            die("partition %d: %s", p, rd_kafka_err2str(rd_kafka_last_error()));
    return queue;
}

static void stop_consumer(rd_kafka_t *rk, rd_kafka_topic_t *rkt, rd_kafka_queue_t *queue) {
    for (int p = 0; p < opt.partitions; p++)
        rd_kafka_consume_stop(rkt, p);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

/* ---- consuming -------------------------------------------------------------------------- */

static int64_t seen, seen_bytes;

static void on_message(rd_kafka_message_t *m, void *opaque) {
    (void)opaque;
    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        return;
    if (m->err)
        die("consume: %s", rd_kafka_message_errstr(m));
    seen++;
    seen_bytes += (int64_t)m->len;
}

static void receive(rd_kafka_queue_t *queue, int64_t count,
                    void (*on)(rd_kafka_message_t *, void *)) {
    int64_t moved_at = now_ns(), before;
    while (seen < count) {
        before = seen;
        rd_kafka_consume_callback_queue(queue, 100, on, NULL);
        if (seen != before)
            moved_at = now_ns();
        else if (now_ns() - moved_at > STALL_NS)
            die("nothing arrived for a minute, after %lld of %lld messages", (long long)seen,
                (long long)count);
    }
}

static void print_throughput(int64_t count, int64_t bytes, int64_t took_ns, int64_t stored) {
    double seconds = (double)took_ns / 1e9;
    printf("{\"mode\":\"%s\",\"messages\":%lld,\"bytes\":%lld,\"seconds\":%.6f,"
           "\"messages_per_s\":%.1f,\"mb_per_s\":%.3f,\"stored\":%lld,\"client_cpu_s\":%.3f,"
           "\"librdkafka\":\"%s\"}\n",
           opt.mode, (long long)count, (long long)bytes, seconds, (double)count / seconds,
           (double)bytes / 1e6 / seconds, (long long)stored, own_cpu_seconds(),
           rd_kafka_version_str());
}

static void consume(void) {
    rd_kafka_t *rk;
    rd_kafka_topic_t *rkt;
    int64_t began = now_ns();
    rd_kafka_queue_t *queue = start_consumer(&rk, &rkt);
    receive(queue, opt.count, on_message);
    print_throughput(seen, seen_bytes, now_ns() - began, -1);
    stop_consumer(rk, rkt, queue);
}

/* ---- producing -------------------------------------------------------------------------- */

static void send_all(rd_kafka_t *rk, rd_kafka_topic_t *rkt) {
    for (int64_t i = 0; i < opt.count; i++) {
        if (rd_kafka_produce(rkt, (int32_t)(i % opt.partitions), RD_KAFKA_MSG_F_BLOCK,
                             value_of(i), (size_t)opt.size, NULL, 0, NULL))
            die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        if (i % 1024 == 0)
            rd_kafka_poll(rk, 0);
    }
    if (rd_kafka_flush(rk, 120000))
        die("%d messages unacknowledged after two minutes", rd_kafka_outq_len(rk));
}

static int64_t stored_messages(rd_kafka_t *rk) {
    int64_t sum = 0, low, high;
    for (int p = 0; p < opt.partitions; p++) {
        rd_kafka_resp_err_t error =
            rd_kafka_query_watermark_offsets(rk, opt.topic, p, &low, &high, 10000);
        if (error)
            die("end of partition %d: %s", p, rd_kafka_err2str(error));
        sum += high - low;
    }
    return sum;
}

static void check_deliveries(void) {
    if (failed)
        die("%lld deliveries failed, the first with: %s", (long long)failed, first_failure);
}

static void produce(void) {
    rd_kafka_t *rk = producer(on_failed_delivery, 1);
    rd_kafka_topic_t *rkt = topic_of(rk);
    int64_t began = now_ns();
    send_all(rk, rkt);
    int64_t took = now_ns() - began;
    check_deliveries();
    print_throughput(opt.count, opt.count * opt.size, took, stored_messages(rk));
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

static void *produce_in_thread(void *opaque) {
    (void)opaque;
    rd_kafka_t *rk = producer(on_failed_delivery, 1);
    rd_kafka_topic_t *rkt = topic_of(rk);
    send_all(rk, rkt);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
    return NULL;
}

/* Produce and tail at once: the clock stops when the last message has come back. */
static void tail(void) {
    rd_kafka_t *rk;
    rd_kafka_topic_t *rkt;
    pthread_t sender;
    rd_kafka_queue_t *queue = start_consumer(&rk, &rkt);
    int64_t began = now_ns();
    pthread_create(&sender, NULL, produce_in_thread, NULL);
    receive(queue, opt.count, on_message);
    int64_t took = now_ns() - began;
    pthread_join(sender, NULL);
    check_deliveries();
    print_throughput(seen, seen_bytes, took, -1);
    stop_consumer(rk, rkt, queue);
}

/* ---- latency ---------------------------------------------------------------------------- */

static int64_t first_due_ns, warmup_count;
static int64_t *publish_ns, *end_to_end_ns, *late_ns; /* by message, -1: never happened */
static volatile int delivered_all;

static int64_t due_ns(int64_t i) {
    return first_due_ns + (int64_t)((double)i * 1e9 / opt.rate);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    int64_t i = (int64_t)(intptr_t)m->_private;
    if (m->err)
        note_failure(m->err);
    else
        publish_ns[i] = now_ns() - due_ns(i);
}

static void on_timed_message(rd_kafka_message_t *m, void *opaque) {
    (void)opaque;
    int64_t i;
    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        return;
    if (m->err)
        die("consume: %s", rd_kafka_message_errstr(m));
    memcpy(&i, m->payload, sizeof i);
    if (i >= 0) /* the messages that open the paths before the clock starts carry -1 */
        end_to_end_ns[i] = now_ns() - due_ns(i);
    seen++;
}

static void *serve_deliveries(void *rk) {
    while (!delivered_all)
        rd_kafka_poll(rk, 10);
    return NULL;
}

static void *receive_timed(void *queue) {
    receive(queue, opt.count + opt.partitions, on_timed_message);
    return NULL;
}

/* Where a message goes: each partition in turn, or where the client likes, as it does for
 * whoever names neither partition nor key: one partition for a while, then another. */
static int32_t place_of(int64_t i, int64_t number) {
    return opt.sticky && number >= 0 ? RD_KAFKA_PARTITION_UA : (int32_t)(i % opt.partitions);
}

static void send_timed(rd_kafka_topic_t *rkt, int64_t i, int64_t number) {
    unsigned char value[opt.size];
    memcpy(value, value_of(i), (size_t)opt.size);
    memcpy(value, &number, sizeof number);
    while (rd_kafka_produce(rkt, place_of(i, number), RD_KAFKA_MSG_F_COPY, value,
                            (size_t)opt.size, NULL, 0, (void *)(intptr_t)i)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        sleep_until(now_ns() + 100000);
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest-rank percentiles of what came after the warm-up, in milliseconds. */
static void print_percentiles(const char *name, int64_t *values) {
    int64_t *from = values + warmup_count, n = opt.count - warmup_count;
    for (int64_t i = 0; i < n; i++)
        if (from[i] < 0)
            die("message %lld has no %s time", (long long)(i + warmup_count), name);
    qsort(from, (size_t)n, sizeof *from, ascending);
    const double at[] = {0.5, 0.99, 0.999, 1.0};
    const char *names[] = {"p50", "p99", "p999", "max"};
    printf("\"%s_ms\":{", name);
    for (int k = 0; k < 4; k++) {
        int64_t rank = (int64_t)(at[k] * (double)n + 0.999999) - 1;
        rank = rank < 0 ? 0 : rank >= n ? n - 1 : rank;
        printf("%s\"%s\":%.4f", k ? "," : "", names[k], (double)from[rank] / 1e6);
    }
    printf("},");
}

static void latency(void) {
    rd_kafka_t *consumer_rk, *rk = producer(on_delivery, 0);
    rd_kafka_topic_t *consumer_rkt, *rkt = topic_of(rk);
    pthread_t deliveries, receiver;
    if (opt.size < 8)
        die("--size must be at least 8: the value carries its number");
    opt.count = (int64_t)(opt.rate * (opt.seconds + opt.warmup_seconds));
    warmup_count = (int64_t)(opt.rate * opt.warmup_seconds);
    size_t slots = (size_t)(opt.count + opt.partitions) * sizeof(int64_t);
    publish_ns = malloc(slots), end_to_end_ns = malloc(slots), late_ns = malloc(slots);
    memset(publish_ns, -1, slots), memset(end_to_end_ns, -1, slots);
    prctl(PR_SET_TIMERSLACK, 1);
    rd_kafka_queue_t *queue = start_consumer(&consumer_rk, &consumer_rkt);
    pthread_create(&deliveries, NULL, serve_deliveries, rk);
    pthread_create(&receiver, NULL, receive_timed, queue);

    for (int p = 0; p < opt.partitions; p++) /* open every path before the clock starts */
        send_timed(rkt, p, -1);
    while (seen < opt.partitions)
        sleep_until(now_ns() + 1000000);
    memset(publish_ns, -1, slots);

    first_due_ns = now_ns() + 10000000;
    for (int64_t i = 0; i < opt.count; i++) {
        int64_t due = due_ns(i);
        if (now_ns() < due)
            sleep_until(due);
        late_ns[i] = now_ns() - due;
        send_timed(rkt, i, i);
    }
    int64_t sent_ns = now_ns() - first_due_ns;
    if (rd_kafka_flush(rk, 120000))
        die("%d messages unacknowledged after two minutes", rd_kafka_outq_len(rk));
    delivered_all = 1;
    pthread_join(deliveries, NULL);
    pthread_join(receiver, NULL);
    check_deliveries();

    printf("{\"mode\":\"latency\",\"messages\":%lld,\"bytes\":%lld,\"rate_per_s\":%.1f,",
           (long long)opt.count, (long long)(opt.count * opt.size),
           (double)opt.count * 1e9 / (double)sent_ns);
    print_percentiles("publish", publish_ns);
    print_percentiles("end_to_end", end_to_end_ns);
    print_percentiles("sender_late", late_ns);
    printf("\"client_cpu_s\":%.3f,\"librdkafka\":\"%s\"}\n", own_cpu_seconds(),
           rd_kafka_version_str());
    stop_consumer(consumer_rk, consumer_rkt, queue);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

/* ---- topics ----------------------------------------------------------------------------- */

/* How many partitions have a leader and every replica in sync. */
static int leaders(rd_kafka_t *rk, rd_kafka_topic_t *rkt) {
    const struct rd_kafka_metadata *metadata;
    int led = 0;
    if (rd_kafka_metadata(rk, 0, rkt, &metadata, 5000))
        return 0;
    for (int p = 0; metadata->topic_cnt == 1 && p < metadata->topics[0].partition_cnt; p++)
        led += metadata->topics[0].partitions[p].leader >= 0 &&
               metadata->topics[0].partitions[p].isr_cnt >= opt.replicas &&
               !metadata->topics[0].partitions[p].err;
    rd_kafka_metadata_destroy(metadata);
    return led;
}

static void create(void) {
    char why[512];
    rd_kafka_t *rk = producer(on_failed_delivery, 1);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_NewTopic_t *new_topic =
        rd_kafka_NewTopic_new(opt.topic, opt.partitions, opt.replicas, why, sizeof why);
    rd_kafka_CreateTopics(rk, &new_topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 30000);
    if (!event || rd_kafka_event_error(event))
        die("create %s: %s", opt.topic, event ? rd_kafka_event_error_string(event) : "no answer");
    size_t n;
    const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(
        rd_kafka_event_CreateTopics_result(event), &n);
    for (size_t i = 0; i < n; i++)
        if (rd_kafka_topic_result_error(results[i]))
            die("create %s: %s", opt.topic, rd_kafka_topic_result_error_string(results[i]));
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(new_topic);
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, opt.topic, NULL);
    for (int64_t began = now_ns(); leaders(rk, rkt) < opt.partitions;) {
        if (now_ns() - began > STALL_NS)
            die("%s has no leaders, or replicas out of sync, after a minute", opt.topic);
        sleep_until(now_ns() + 20000000);
    }
    printf("{\"mode\":\"create\",\"partitions\":%d}\n", opt.partitions);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

/* ---- command line ----------------------------------------------------------------------- */

static void read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"bootstrap", 1, 0, 'b'}, {"topic", 1, 0, 't'},   {"partitions", 1, 0, 'p'},
        {"count", 1, 0, 'n'},     {"size", 1, 0, 's'},    {"acks", 1, 0, 'a'},
        {"rate", 1, 0, 'r'},      {"seconds", 1, 0, 'd'}, {"warmup-seconds", 1, 0, 'w'},
        {"set", 1, 0, 'x'},       {"replicas", 1, 0, 'c'}, {"sticky", 0, 0, 'y'},
        {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (c) {
        case 'b': opt.bootstrap = optarg; break;
        case 't': opt.topic = optarg; break;
        case 'p': opt.partitions = atoi(optarg); break;
        case 'c': opt.replicas = atoi(optarg); break;
        case 'y': opt.sticky = 1; break;
        case 'n': opt.count = atoll(optarg); break;
        case 's': opt.size = atoll(optarg); break;
        case 'a': opt.acks = optarg; break;
        case 'r': opt.rate = atof(optarg); break;
        case 'd': opt.seconds = atof(optarg); break;
        case 'w': opt.warmup_seconds = atof(optarg); break;
        case 'x':
            if (opt.settings_count == MAX_SETTINGS)
                die("more than %d --set", MAX_SETTINGS);
            opt.settings[opt.settings_count++] = optarg;
            break;
        default: exit(2);
        }
    if (optind != argc - 1)
        die("usage: rdload create|produce|consume|tail|latency --bootstrap H:P --topic T ...");
    opt.mode = argv[optind];
    if (opt.partitions < 1 || opt.partitions > MAX_PARTITIONS || opt.count < 1 || opt.size < 1 ||
        opt.size > 1000000 || opt.rate <= 0 || opt.seconds <= 0 || opt.warmup_seconds < 0)
        die("an option is out of range");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"create", create}, {"produce", produce}, {"consume", consume},
                 {"tail", tail},     {"latency", latency}};
    read_options(argc, argv);
    fill_pool();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, opt.mode)) {
            modes[i].run();
            return 0;
        }
    die("unknown mode %s", opt.mode);
}
