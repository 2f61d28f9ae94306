/* A load generator over librdkafka: as little work per record as the library allows, so that the broker is what is
 * measured. It prints one JSON line.
 *
 *   driver produce  BROKERS TOPIC key=value...    produce `records` records of `size` bytes, wait for every answer
 *   driver fetch    BROKERS TOPIC key=value...    read `records` records from `from`=earliest|latest of all partitions
 *
 * Keys of its own: records, size, partitions, clients, from, timeout (seconds), payload, rate. The rest goes to
 * librdkafka. `payload`=noise sends the same record again and again, which a codec makes nothing of; `payload`=words
 * sends records that differ, and that lz4 halves. With a `rate` (records in a second) so many are sent and no more, and
 * what is told is how long records take: from when they are handed to librdkafka until they are acknowledged.
 *
 * The declarations below are the part of librdkafka's stable C interface that is used here: the driver links against
 * the library inside the confluent-kafka wheel, which comes without headers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1 };
enum { CONF_OK = 0 };
enum { ERR_NONE = 0, ERR_PARTITION_EOF = -191, ERR_QUEUE_FULL = -184 };
enum { OFFSET_BEGINNING = -2, PARTITION_UNASSIGNED = -1 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
rd_kafka_conf_t *rd_kafka_conf_dup(const rd_kafka_conf_t *);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *,
                                 void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_outq_len(rd_kafka_t *);
int rd_kafka_query_watermark_offsets(rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *, int);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_err2str(int);
int64_t rd_kafka_message_latency(const rd_kafka_message_t *);
const char *rd_kafka_version_str(void);

enum { BATCH = 1000, MAX_PARTITIONS = 4096, MAX_CLIENTS = 1024, QUEUE_LIMIT = 500000 };
enum { WORDS = 400, WORD = 16, NOISE = 8, POOL = 8 << 20 };

static int64_t failed_records;
static int first_error;
static int32_t *latencies; /* in microseconds, of records with a rate */
static int64_t answered;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec +
           usage.ru_stime.tv_usec / 1e6;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "driver: %s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char reason[512];
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)) != CONF_OK)
        die(name, reason);
}

/* Without a rate only failures are reported (delivery.report.only.error): a callback per record would cost more than
 * sending it. */
static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err != ERR_NONE) {
        failed_records++;
        if (first_error == ERR_NONE)
            first_error = message->err;
    } else if (latencies != NULL) {
        int64_t taken = rd_kafka_message_latency(message);
        latencies[answered++] = taken > INT32_MAX ? INT32_MAX : (int32_t)taken;
    }
}

static int smaller(const void *one, const void *other) {
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

static double latency_ms(double share) {
    return answered ? latencies[(int64_t)((answered - 1) * share)] / 1e3 : 0;
}

static void report(const char *mode, int64_t records, int64_t bytes, double seconds) {
    printf("{\"mode\": \"%s\", \"records\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.3f, "
           "\"failed\": %lld, \"error\": \"%s\", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"librdkafka\": \"%s\"}\n",
           mode, (long long)records, (long long)bytes, seconds, cpu_seconds(), (long long)failed_records,
           first_error ? rd_kafka_err2str(first_error) : "", latency_ms(0.5), latency_ms(0.99), rd_kafka_version_str());
    fflush(stdout);
}

/* Serve the callbacks of all clients, and count what they still have to send. */
static int64_t pending(rd_kafka_t **clients, int count) {
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        rd_kafka_poll(clients[i], 0);
        sum += rd_kafka_outq_len(clients[i]);
    }
    return sum;
}

static void drain(rd_kafka_t **clients, int count, double give_up) {
    while (pending(clients, count) > 0 && now() < give_up)
        rd_kafka_poll(clients[0], 1);
}

static void fill_with_noise(char *place, int64_t size) {
    static uint32_t noise = 12345;
    for (int64_t i = 0; i < size; i++) {
        noise = noise * 1664525u + 1013904223u;
        place[i] = (char)(noise >> 24);
    }
}

/* Words that come again, each with noise behind it: a codec needs 11 bytes for the 24 of both. */
static void fill_with_words(char *place, int64_t size) {
    static char words[WORDS * WORD];
    fill_with_noise(words, sizeof(words));
    for (int64_t i = 0; i + WORD + NOISE <= size; i += WORD + NOISE) {
        uint16_t chosen;
        fill_with_noise((char *)&chosen, sizeof(chosen));
        memcpy(place + i, words + chosen % WORDS * WORD, WORD);
        fill_with_noise(place + i + WORD, NOISE);
    }
}

static int produce(rd_kafka_t **clients, int count, const char *name, int64_t records, int64_t size, int worded,
                   double rate, double timeout) {
    static rd_kafka_topic_t *topics[MAX_CLIENTS];
    static rd_kafka_message_t batch[BATCH];
    int64_t pool = worded && POOL > 2 * size ? POOL : size, at = 0;
    char *payload = malloc(pool);
    if (worded)
        fill_with_words(payload, pool);
    else
        fill_with_noise(payload, pool);

    /* One record first: metadata, connections and producer ids are then there, and not part of the measurement. */
    for (int i = 0; i < count; i++) {
        topics[i] = rd_kafka_topic_new(clients[i], name, NULL);
        batch[0] = (rd_kafka_message_t){.payload = payload, .len = size};
        rd_kafka_produce_batch(topics[i], PARTITION_UNASSIGNED, 0, batch, 1);
    }
    double give_up = now() + timeout;
    drain(clients, count, give_up);
    if (pending(clients, count) > 0)
        die("produce", "the first record was not answered in time");

    if (rate > 0)
        latencies = malloc(records * sizeof(*latencies));
    double start = now();
    give_up = start + timeout;
    int64_t left = records;
    for (int turn = 0; left > 0; turn = (turn + 1) % count) {
        if (now() > give_up)
            die("produce", "not done in time");
        if (rd_kafka_outq_len(clients[turn]) > QUEUE_LIMIT - BATCH) {
            rd_kafka_poll(clients[turn], 1); /* full: to try in vain would cost the CPU that the broker needs */
            continue;
        }
        int wanted = left < BATCH ? (int)left : BATCH;
        if (rate > 0) {
            int64_t due = (int64_t)((now() - start) * rate) - (records - left);
            if (due <= 0) {
                rd_kafka_poll(clients[turn], 1);
                continue;
            }
            if (due < wanted)
                wanted = (int)due;
        }
        for (int i = 0; i < wanted; i++) {
            batch[i] = (rd_kafka_message_t){.payload = payload + at, .len = size};
            at = at + 2 * size <= pool ? at + size : 0;
        }
        int taken = rd_kafka_produce_batch(topics[turn], PARTITION_UNASSIGNED, 0, batch, wanted);
        left -= taken;
        for (int i = 0; taken < wanted && i < wanted; i++)
            if (batch[i].err != ERR_NONE && batch[i].err != ERR_QUEUE_FULL)
                die("produce", rd_kafka_err2str(batch[i].err));
        rd_kafka_poll(clients[turn], 0);
    }
    drain(clients, count, give_up);
    double seconds = now() - start;
    failed_records += pending(clients, count);
    int64_t delivered = records - failed_records;
    if (latencies != NULL)
        qsort(latencies, answered, sizeof(*latencies), smaller);
    report("produce", delivered, delivered * size, seconds);
    return failed_records ? 1 : 0;
}

static int fetch(rd_kafka_t *client, const char *name, int64_t records, int partitions, int latest, double timeout) {
    static int64_t expected[MAX_PARTITIONS];
    static rd_kafka_message_t *batch[BATCH];
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    for (int partition = 0; partition < partitions; partition++) {
        int64_t low = 0, high = 0;
        int error = rd_kafka_query_watermark_offsets(client, name, partition, &low, &high, 30000);
        if (error != ERR_NONE)
            die("watermarks", rd_kafka_err2str(error));
        expected[partition] = latest ? high : low;
    }
    double start = now();
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, expected[partition], queue) != 0)
            die("fetch", "a partition could not be read");
    if (latest) {
        puts("ready");
        fflush(stdout);
    }
    double give_up = start + timeout;
    int64_t seen = 0, bytes = 0;
    while (seen < records) {
        size_t wanted = records - seen < BATCH ? (size_t)(records - seen) : BATCH;
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, batch, wanted);
        if (latest && seen == 0 && count > 0)
            start = now(); /* the clock of a tail starts with its first record */
        for (ssize_t i = 0; i < count; i++) {
            rd_kafka_message_t *message = batch[i];
            if (message->err == ERR_NONE) {
                if (message->offset != expected[message->partition])
                    die("fetch", "an offset was skipped or repeated");
                expected[message->partition]++;
                seen++;
                bytes += message->len;
            } else if (message->err != ERR_PARTITION_EOF) {
                die("fetch", rd_kafka_err2str(message->err));
            }
            rd_kafka_message_destroy(message);
        }
        if (now() > give_up)
            die("fetch", "not done in time");
    }
    report("fetch", seen, bytes, now() - start);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4)
        die("usage", "driver produce|fetch BROKERS TOPIC key=value...");
    int producing = strcmp(argv[1], "produce") == 0;
    if (!producing && strcmp(argv[1], "fetch") != 0)
        die("usage", "the mode is produce or fetch");
    int64_t records = 1000, size = 1024;
    int partitions = 1, clients = 1, latest = 0;
    double timeout = 120, rate = 0;
    int worded = 0;

    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", argv[2]);
    if (producing) {
        set(conf, "queue.buffering.max.messages", "500000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL)
            die(argv[i], "not key=value");
        *value++ = '\0';
        if (strcmp(argv[i], "records") == 0)
            records = atoll(value);
        else if (strcmp(argv[i], "size") == 0)
            size = atoll(value);
        else if (strcmp(argv[i], "partitions") == 0)
            partitions = atoi(value);
        else if (strcmp(argv[i], "clients") == 0)
            clients = atoi(value);
        else if (strcmp(argv[i], "from") == 0)
            latest = strcmp(value, "latest") == 0;
        else if (strcmp(argv[i], "timeout") == 0)
            timeout = atof(value);
        else if (strcmp(argv[i], "payload") == 0)
            worded = strcmp(value, "words") == 0;
        else if (strcmp(argv[i], "rate") == 0)
            rate = atof(value);
        else
            set(conf, argv[i], value);
    }
    if (partitions < 1 || partitions > MAX_PARTITIONS || clients < 1 || clients > MAX_CLIENTS || size < 1 ||
        records < 1)
        die("usage", "records, size, partitions or clients is out of range");
    if (producing && rate <= 0)
        set(conf, "delivery.report.only.error", "true");
    static rd_kafka_t *made[MAX_CLIENTS];
    for (int i = 0; i < clients; i++) {
        char reason[512];
        rd_kafka_conf_t *copy = rd_kafka_conf_dup(conf);
        made[i] = rd_kafka_new(producing ? PRODUCER : CONSUMER, copy, reason, sizeof(reason));
        if (made[i] == NULL)
            die("client", reason);
    }
    int code = producing ? produce(made, clients, argv[3], records, size, worded, rate, timeout)
                         : fetch(made[0], argv[3], records, partitions, latest, timeout);
    /* Tearing the client down takes time that belongs to no measurement. */
    _Exit(code);
}
