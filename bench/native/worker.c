/* The native contender: it keeps the worker's at-least-once promises for plain rows, and does little else.
 *
 *   consume ─▶ judge, copy the row ─▶ batch by size and linger ─▶ one inference ─▶ answers ─▶ reports ─▶ commit
 *
 * One thread does everything except long inferences: these run in a lane of their own, while the next batch fills.
 * Neighbouring records of a partition that share a batch share a place in the partition's line (`struct run`).
 * A run is done when the broker has acknowledged all its answers. A commit goes up to the first run that is not done.
 *
 *   worker BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE [consumer|producer:NAME=VALUE ...]
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "clients.h"
#include "model.h"

enum { CHUNK = 512, AHEAD = 2, RING = 4, ECHOES = 4, MOST_UNSETTLED = 20000, NAME_SIZE = 280 };
static const double LINGER = 0.005, BRIEF = 0.0003, COMMIT_INTERVAL = 0.2, DRAIN = 20.0;

struct run {
    struct line *line;
    struct run *next;
    size_t unacknowledged;
    int64_t end; /* the offset that a commit past this run carries */
};

struct line { /* of one partition, while it is ours */
    struct line *next;
    char topic[NAME_SIZE], source[NAME_SIZE];
    size_t source_size;
    int32_t partition;
    struct run *first, *last;
    size_t batch; /* the number of the batch of `last` */
    int64_t committable, committed;
};

struct echo { const char *name; const void *value; size_t size; };

struct entry { /* of a batch */
    rd_kafka_message_t *message;
    struct run *run;
    const char *refusal;
    float *answer;
    size_t echo_count;
    struct echo echoes[ECHOES];
};

struct batch {
    struct entry *entries;
    size_t count, rows;
    float *feed, *answers;
    double opened_at;
};

static rd_kafka_t *consumer, *producer;
static rd_kafka_queue_t *incoming;
static rd_kafka_topic_t *responses;
static struct line *lines, *latest; /* `latest`: the last record's, because most records have the previous partition */
static rd_kafka_topic_t *latest_topic;
static rd_kafka_message_t *fetched[CHUNK];
static size_t fetched_count, fetched_at, batch_size, unsettled;
static bool is_brief;
static volatile sig_atomic_t stop_asked;

/* Batch number n is `ring[n % RING]`; the batch with the number `handed_out` is being filled. */
static struct batch ring[RING];
static size_t handed_out, ran, answered;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t handed, finished;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void check(rd_kafka_error_t *error) {
    if (error != NULL) die("Kafka", rd_kafka_error_string(error));
}

/* Records and their answers */

static struct line *line_of(const char *topic, int32_t partition) {
    for (struct line *line = lines; line != NULL; line = line->next)
        if (line->partition == partition && strcmp(line->topic, topic) == 0) return line;
    return NULL;
}

static struct line *line_of_message(const rd_kafka_message_t *message) {
    if (latest == NULL || latest_topic != message->topic || latest->partition != message->partition) {
        latest = line_of(rd_kafka_topic_name(message->topic), message->partition);
        latest_topic = message->topic;
    }
    return latest;
}

static struct run *track(struct line *line, int64_t offset) {
    if (line->last == NULL || line->batch != handed_out) {
        struct run *run = calloc(1, sizeof *run);
        run->line = line;
        *(line->last == NULL ? &line->first : &line->last->next) = run;
        line->last = run;
        line->batch = handed_out;
    }
    line->last->unacknowledged++;
    line->last->end = offset + 1;
    unsettled++;
    return line->last;
}

static void settle(struct line *line) {
    while (line->first != NULL && line->first->unacknowledged == 0) {
        struct run *done = line->first;
        line->committable = done->end;
        line->first = done->next;
        if (line->first == NULL) line->last = NULL;
        free(done);
    }
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *answer, void *opaque) {
    struct run *run = answer->opaque;
    if (answer->err != 0) die("an answer was refused", rd_kafka_err2str(answer->err));
    unsettled--;
    if (--run->unacknowledged == 0) settle(run->line);
}

/* Commits */

static void commit(bool is_async) {
    rd_kafka_topic_partition_list_t *offsets = NULL;
    for (struct line *line = lines; line != NULL; line = line->next) {
        if (line->committable <= line->committed) continue;
        if (offsets == NULL) offsets = rd_kafka_topic_partition_list_new(8);
        rd_kafka_topic_partition_list_add(offsets, line->topic, line->partition)->offset = line->committable;
        line->committed = line->committable;
    }
    if (offsets == NULL) return;
    rd_kafka_commit(consumer, offsets, is_async);
    rd_kafka_topic_partition_list_destroy(offsets);
}

static void on_commit(rd_kafka_t *client, int why, rd_kafka_topic_partition_list_t *offsets, void *opaque) {
    for (int at = 0; offsets != NULL && at < offsets->cnt; at++) {
        struct line *line = line_of(offsets->elems[at].topic, offsets->elems[at].partition);
        if (line != NULL && (why != 0 || offsets->elems[at].err != 0)) line->committed = -1; /* commit it again */
    }
}

static void commit_if_due(void) {
    static double due;
    double at = now();
    if (at < due) return;
    due = at + COMMIT_INTERVAL;
    commit(true);
}

/* Requests */

static bool is_named(const char *name, const char *wanted) { return strcasecmp(name, wanted) == 0; }

static bool read_headers(struct entry *entry) {
    rd_kafka_headers_t *headers;
    const char *name;
    const void *value;
    size_t size;
    bool is_rows = false;
    entry->echo_count = 0;
    if (rd_kafka_message_headers(entry->message, &headers) != 0) return false;
    for (size_t at = 0; rd_kafka_header_get_all(headers, at, &name, &value, &size) == 0; at++) {
        if (is_named(name, "content-type"))
            is_rows = size == 24 && memcmp(value, "application/octet-stream", 24) == 0;
        else if (is_named(name, "request-id") || is_named(name, "correlation-id") || is_named(name, "traceparent"))
            if (entry->echo_count < ECHOES) entry->echoes[entry->echo_count++] = (struct echo){name, value, size};
    }
    return is_rows;
}

static bool is_finite(const float *row, size_t count) {
    unsigned is_odd = 0;
    for (size_t at = 0; at < count; at++) {
        uint32_t bits;
        memcpy(&bits, &row[at], sizeof bits);
        is_odd |= (bits & 0x7f800000) == 0x7f800000;
    }
    return !is_odd;
}

static const char *judge(struct entry *entry, float *row) {
    const rd_kafka_message_t *message = entry->message;
    if (!read_headers(entry)) return "content-type: only application/octet-stream is served";
    if (message->len != row_floats * sizeof(float)) return "expected one row of the model's input";
    memcpy(row, message->payload, message->len);
    return is_finite(row, row_floats) ? NULL : "the input holds NaN or infinity";
}

static void take(rd_kafka_message_t *message) {
    struct batch *batch = &ring[handed_out % RING];
    struct line *line = message->err == 0 ? line_of_message(message) : NULL;
    if (message->err == FATAL) die("the consumer failed", message->payload);
    if (line == NULL) { /* a temporary error, or a record whose partition has another owner now */
        rd_kafka_message_destroy(message);
        return;
    }
    struct entry *entry = &batch->entries[batch->count];
    entry->message = message;
    entry->answer = &batch->answers[batch->rows * answer_floats];
    entry->refusal = judge(entry, &batch->feed[batch->rows * row_floats]);
    entry->run = track(line, message->offset);
    if (batch->count++ == 0) batch->opened_at = now();
    if (entry->refusal == NULL) batch->rows++;
}

/* Copy rows into the batch as they come. Returns true if there were any. */
static bool take_in(int patience) {
    struct batch *batch = &ring[handed_out % RING];
    if (batch->count == batch_size || unsettled >= MOST_UNSETTLED) patience = 0;
    if (fetched_at == fetched_count) {
        size_t room = unsettled < MOST_UNSETTLED ? CHUNK : 1;
        fetched_at = fetched_count = 0;
        ssize_t count = rd_kafka_consume_batch_queue(incoming, 0, fetched, room);
        if (count <= 0 && patience > 0) count = rd_kafka_consume_batch_queue(incoming, patience, fetched, 1);
        fetched_count = count > 0 ? (size_t)count : 0;
        batch = &ring[handed_out % RING]; /* a rebalance may have handed out the batch */
    }
    bool is_new = fetched_at < fetched_count && batch->count < batch_size;
    while (fetched_at < fetched_count && batch->count < batch_size) take(fetched[fetched_at++]);
    return is_new;
}

/* Answers */

static void add(rd_kafka_headers_t *headers, const char *name, const void *value, ssize_t size) {
    rd_kafka_header_add(headers, name, -1, value, size);
}

static size_t source_of(const struct entry *entry, char *text) {
    const struct line *line = entry->run->line;
    char digits[20];
    size_t count = 0, size = line->source_size;
    int64_t left = entry->message->offset;
    memcpy(text, line->source, size);
    do digits[count++] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    while (count > 0) text[size++] = digits[--count];
    return size;
}

static rd_kafka_headers_t *headers_of(const struct entry *entry) {
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    char source[NAME_SIZE + 20];
    add(headers, "content-type", entry->refusal == NULL ? "application/octet-stream" : "application/json", -1);
    add(headers, "status", entry->refusal == NULL ? "ok" : "error", -1);
    if (entry->refusal != NULL) add(headers, "error-code", "INVALID_ARGUMENT", -1);
    add(headers, "source", source, (ssize_t)source_of(entry, source));
    for (size_t at = 0; at < entry->echo_count; at++)
        add(headers, entry->echoes[at].name, entry->echoes[at].value, (ssize_t)entry->echoes[at].size);
    return headers;
}

static void produce(const struct entry *entry, const void *value, size_t size) {
    const rd_kafka_message_t *request = entry->message;
    rd_kafka_headers_t *headers = headers_of(entry);
    rd_kafka_vu_t fields[] = {
        {OF_TOPIC, {.topic = responses}},
        {OF_PARTITION, {.partition = request->key_len > 0 ? ANY_PARTITION : request->partition}},
        {OF_VALUE, {.bytes = {value, size}}},
        {OF_KEY, {.bytes = {request->key, request->key_len}}},
        {OF_FLAGS, {.flags = COPY}},
        {OF_HEADERS, {.headers = headers}},
        {OF_OPAQUE, {.opaque = entry->run}},
    };
    rd_kafka_error_t *error;
    while ((error = rd_kafka_produceva(producer, fields, sizeof fields / sizeof *fields)) != NULL) {
        if (rd_kafka_error_code(error) != LOST_QUEUE_ROOM) check(error);
        rd_kafka_error_destroy(error);
        rd_kafka_poll(producer, 10);
    }
}

static void answer(const struct entry *entry) {
    char body[256];
    if (entry->refusal == NULL && is_finite(entry->answer, answer_floats)) {
        produce(entry, entry->answer, answer_floats * sizeof(float));
    } else {
        struct entry refused = *entry;
        if (refused.refusal == NULL) refused.refusal = "the output holds NaN or infinity";
        produce(&refused, body, (size_t)snprintf(body, sizeof body, "{\"error\": \"%s\"}", refused.refusal));
    }
    rd_kafka_message_destroy(entry->message);
}

/* Inferences */

static void *lane(void *unused) {
    pthread_mutex_lock(&gate);
    for (;;) {
        while (ran == handed_out) pthread_cond_wait(&handed, &gate);
        struct batch *batch = &ring[ran % RING];
        pthread_mutex_unlock(&gate);
        if (batch->rows > 0) run_model(batch->feed, batch->rows, batch->answers);
        pthread_mutex_lock(&gate);
        ran++;
        pthread_cond_signal(&finished);
    }
    return unused;
}

static void hand_out(void) {
    struct batch *batch = &ring[handed_out % RING];
    if (is_brief) {
        if (batch->rows > 0) run_model(batch->feed, batch->rows, batch->answers);
        handed_out++;
        ran++;
    } else {
        pthread_mutex_lock(&gate);
        handed_out++;
        pthread_cond_signal(&handed);
        pthread_mutex_unlock(&gate);
    }
    ring[handed_out % RING].count = ring[handed_out % RING].rows = 0;
}

static bool is_due(void) {
    const struct batch *batch = &ring[handed_out % RING];
    size_t out = handed_out - answered;
    if (batch->count == batch_size) return out < AHEAD;
    return batch->count > 0 && out == 0 && now() >= batch->opened_at + LINGER;
}

/* Returns how many batches have run and are not answered yet, waiting at most so many seconds for the first. */
static size_t wait_for_lane(double seconds) {
    pthread_mutex_lock(&gate);
    if (seconds > 0 && ran == answered && ran < handed_out) {
        double until = now() + seconds;
        struct timespec at = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
        while (ran == answered && pthread_cond_timedwait(&finished, &gate, &at) != ETIMEDOUT) continue;
    }
    size_t count = ran - answered;
    pthread_mutex_unlock(&gate);
    return count;
}

static void answer_finished(double patience) {
    for (size_t count = wait_for_lane(patience); count > 0; count--) {
        struct batch *batch = &ring[answered % RING];
        for (size_t at = 0; at < batch->count; at++) answer(&batch->entries[at]);
        answered++;
    }
}

/* Partitions come and go */

static void settle_all(double deadline) {
    if (ring[handed_out % RING].count > 0) hand_out();
    while (answered < handed_out && now() < deadline) answer_finished(0.1);
    while (unsettled > 0 && now() < deadline) {
        rd_kafka_flush(producer, 10);
        rd_kafka_poll(producer, 0);
    }
    if (unsettled > 0) die("stopped", "not all answers were acknowledged in time"); /* and none of them is committed */
}

static void add_line(const rd_kafka_topic_partition_t *at) {
    struct line *line = calloc(1, sizeof *line);
    snprintf(line->topic, sizeof line->topic, "%s", at->topic);
    line->source_size = (size_t)snprintf(line->source, sizeof line->source, "%s/%d/", at->topic, at->partition);
    line->partition = at->partition;
    line->committable = line->committed = -1;
    line->next = lines;
    lines = line;
}

static void drop_line(const rd_kafka_topic_partition_t *at) {
    for (struct line **line = &lines; *line != NULL; line = &(*line)->next) {
        if ((*line)->partition != at->partition || strcmp((*line)->topic, at->topic) != 0) continue;
        struct line *gone = *line;
        *line = gone->next;
        latest = NULL;
        free(gone);
        return;
    }
}

/* Runs inside a poll of the consumer. All held records are answered and committed before a partition leaves. */
static void on_rebalance(rd_kafka_t *client, int why, rd_kafka_topic_partition_list_t *which, void *opaque) {
    if (why == ASSIGNED) {
        for (int at = 0; at < which->cnt; at++) add_line(&which->elems[at]);
        check(rd_kafka_incremental_assign(client, which));
        return;
    }
    settle_all(now() + DRAIN / 2);
    if (!rd_kafka_assignment_lost(client)) commit(false);
    for (int at = 0; at < which->cnt; at++) drop_line(&which->elems[at]);
    check(rd_kafka_incremental_unassign(client, which));
}

/* The loop */

static int milliseconds_to_wait(void) {
    const struct batch *batch = &ring[handed_out % RING];
    if (handed_out > answered) return 0;
    if (batch->count > 0) {
        double left = batch->opened_at + LINGER - now();
        return left <= 0 ? 0 : 1 + (int)(left * 1000);
    }
    return unsettled > 0 ? 5 : 100;
}

static void turn(void) {
    bool is_new = take_in(milliseconds_to_wait());
    if (is_due()) hand_out();
    bool is_waiting = !is_new || ring[handed_out % RING].count == batch_size;
    answer_finished(is_waiting && handed_out > answered ? LINGER : 0.0);
    rd_kafka_poll(producer, 0);
    commit_if_due();
}

static rd_kafka_conf_t *configured(const char *kind, const char *const *words) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char why[200];
    for (; *words != NULL; words++) {
        char word[1000], *value;
        if (strncmp(*words, kind, strlen(kind)) != 0) continue;
        snprintf(word, sizeof word, "%s", *words + strlen(kind));
        if ((value = strchr(word, '=')) == NULL) die("no setting", *words);
        *value++ = '\0';
        if (rd_kafka_conf_set(conf, word, value, why, sizeof why) != 0) die("librdkafka", why);
    }
    return conf;
}

static rd_kafka_t *client(int kind, rd_kafka_conf_t *conf) {
    char why[200];
    rd_kafka_t *made = rd_kafka_new(kind, conf, why, sizeof why);
    if (made == NULL) die("librdkafka", why);
    return made;
}

static void open_clients(const char *topic, const char *answers, const char *const *words) {
    rd_kafka_conf_t *consuming = configured("consumer:", words), *producing = configured("producer:", words);
    rd_kafka_conf_set_rebalance_cb(consuming, on_rebalance);
    rd_kafka_conf_set_offset_commit_cb(consuming, on_commit);
    rd_kafka_conf_set_dr_msg_cb(producing, on_delivery);
    producer = client(PRODUCER, producing);
    responses = rd_kafka_topic_new(producer, answers, NULL);
    consumer = client(CONSUMER, consuming);
    rd_kafka_poll_set_consumer(consumer);
    incoming = rd_kafka_queue_get_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, ANY_PARTITION);
    if (rd_kafka_subscribe(consumer, topics) != 0) die("Kafka", "no subscription");
    rd_kafka_topic_partition_list_destroy(topics);
}

static void open_ring(void) {
    for (size_t at = 0; at < RING; at++) {
        ring[at].entries = calloc(batch_size, sizeof(struct entry));
        ring[at].feed = calloc((batch_size + 1) * row_floats, sizeof(float)); /* a refused row may be copied last */
        ring[at].answers = calloc((batch_size + 1) * answer_floats, sizeof(float));
    }
}

static void open_lane(void) {
    pthread_condattr_t monotonic;
    pthread_t thread;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&handed, NULL);
    pthread_cond_init(&finished, &monotonic);
    if (!is_brief && pthread_create(&thread, NULL, lane, NULL) != 0) die("lane", "no thread");
}

static void on_signal(int number) { stop_asked = number; }

int main(int count, const char *const *words) {
    if (count < 8) die("usage", "worker BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE [consumer|producer:NAME=VALUE]");
    if (rd_kafka_version() >> 24 != 2) die("librdkafka is not of version 2", rd_kafka_version_str());
    signal(SIGTERM, on_signal);
    batch_size = (size_t)atoi(words[6]);
    is_brief = open_model(words[5], batch_size) < BRIEF;
    open_ring();
    open_lane();
    open_clients(words[2], words[3], words + 8);
    while (!stop_asked) turn();
    for (; fetched_at < fetched_count; fetched_at++) rd_kafka_message_destroy(fetched[fetched_at]);
    rd_kafka_queue_destroy(incoming);
    rd_kafka_consumer_close(consumer); /* its rebalance settles and commits everything */
    return 0;
}
