/* The declarations, by hand, of the functions of librdkafka 2 and ONNX Runtime 1 that the native contender calls.
 *
 * It is linked with the two libraries in the wheels of confluent-kafka and onnxruntime, which have no headers. Both
 * libraries keep these declarations within a major version: librdkafka its functions, structures and numbers, ONNX
 * Runtime the order of its table, to which it only appends. `main` checks their versions before it calls anything else.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* librdkafka */

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef int rd_kafka_resp_err_t;

enum { PRODUCER, CONSUMER };
enum { LOST_QUEUE_ROOM = -184, ASSIGNED = -175, REVOKED = -174, NO_OFFSET = -168, FATAL = -150 };
enum { ANY_PARTITION = -1, COPY = 2 };
enum { OF_TOPIC = 2, OF_PARTITION, OF_VALUE, OF_KEY, OF_OPAQUE, OF_FLAGS, OF_HEADERS = 10 };

typedef struct {
    rd_kafka_resp_err_t err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    rd_kafka_resp_err_t err;
    void *private;
} rd_kafka_topic_partition_t;

typedef struct {
    int cnt, size;
    rd_kafka_topic_partition_t *elems;
} rd_kafka_topic_partition_list_t;

typedef struct {
    int field;
    union {
        rd_kafka_topic_t *topic;
        int flags;
        int32_t partition;
        struct { const void *at; size_t size; } bytes;
        rd_kafka_headers_t *headers;
        void *opaque;
        char room[64];
    } u;
} rd_kafka_vu_t;

int rd_kafka_version(void);
const char *rd_kafka_version_str(void);
const char *rd_kafka_err2str(rd_kafka_resp_err_t);
rd_kafka_resp_err_t rd_kafka_error_code(const rd_kafka_error_t *);
const char *rd_kafka_error_string(const rd_kafka_error_t *);
void rd_kafka_error_destroy(rd_kafka_error_t *);
rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *why, size_t size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_rebalance_cb(
    rd_kafka_conf_t *, void (*)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *, void *));
void rd_kafka_conf_set_offset_commit_cb(
    rd_kafka_conf_t *, void (*)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *, void *));
rd_kafka_t *rd_kafka_new(int kind, rd_kafka_conf_t *, char *why, size_t size);
void rd_kafka_destroy(rd_kafka_t *);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *name, void *conf);
const char *rd_kafka_topic_name(const rd_kafka_topic_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
void rd_kafka_queue_destroy(rd_kafka_queue_t *);
rd_kafka_resp_err_t rd_kafka_subscribe(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t most);
void rd_kafka_message_destroy(rd_kafka_message_t *);
rd_kafka_error_t *rd_kafka_incremental_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_error_t *rd_kafka_incremental_unassign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
int rd_kafka_assignment_lost(rd_kafka_t *);
rd_kafka_resp_err_t rd_kafka_commit(rd_kafka_t *, const rd_kafka_topic_partition_list_t *, int is_async);
rd_kafka_resp_err_t rd_kafka_consumer_close(rd_kafka_t *);
rd_kafka_resp_err_t rd_kafka_message_headers(const rd_kafka_message_t *, rd_kafka_headers_t **);
rd_kafka_resp_err_t rd_kafka_header_get_all(
    const rd_kafka_headers_t *, size_t at, const char **name, const void **value, size_t *size);
rd_kafka_headers_t *rd_kafka_headers_new(size_t room);
void rd_kafka_headers_destroy(rd_kafka_headers_t *);
rd_kafka_resp_err_t rd_kafka_header_add(
    rd_kafka_headers_t *, const char *name, ssize_t name_size, const void *value, ssize_t size);
rd_kafka_error_t *rd_kafka_produceva(rd_kafka_t *, const rd_kafka_vu_t *, size_t count);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
rd_kafka_resp_err_t rd_kafka_flush(rd_kafka_t *, int timeout_ms);

/* ONNX Runtime: a table of functions. `unused_N` begins at the Nth. */

typedef struct OrtStatus OrtStatus; /* NULL: all went well */
typedef struct OrtEnv OrtEnv;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtShape OrtShape;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;

enum { LOG_WARNING = 2, FLOAT = 1, ARENA = 1, DEFAULT_MEMORY = 0 };

typedef struct {
    void *unused_0[2];
    const char *(*message)(const OrtStatus *);
    OrtStatus *(*create_env)(int log_level, const char *id, OrtEnv **);
    void *unused_4[2];
    OrtStatus *(*disable_telemetry)(const OrtEnv *);
    OrtStatus *(*create_session)(const OrtEnv *, const char *path, const OrtSessionOptions *, OrtSession **);
    void *unused_8;
    OrtStatus *(*run)(
        OrtSession *, void *options, const char *const *names, const OrtValue *const *inputs, size_t count,
        const char *const *output_names, size_t output_count, OrtValue **outputs);
    OrtStatus *(*create_session_options)(OrtSessionOptions **);
    void *unused_11[13];
    OrtStatus *(*set_intra_op_num_threads)(OrtSessionOptions *, int);
    void *unused_25[8];
    OrtStatus *(*input_type)(const OrtSession *, size_t at, OrtTypeInfo **);
    OrtStatus *(*output_type)(const OrtSession *, size_t at, OrtTypeInfo **);
    void *unused_35;
    OrtStatus *(*input_name)(const OrtSession *, size_t at, OrtAllocator *, char **);
    OrtStatus *(*output_name)(const OrtSession *, size_t at, OrtAllocator *, char **);
    void *unused_38[11];
    OrtStatus *(*create_tensor)(
        const OrtMemoryInfo *, void *data, size_t bytes, const int64_t *shape, size_t dims, int type, OrtValue **);
    void *unused_50[5];
    OrtStatus *(*to_shape)(const OrtTypeInfo *, const OrtShape **);
    void *unused_56[6];
    OrtStatus *(*dimensions)(const OrtShape *, int64_t *, size_t count);
    void *unused_63[6];
    OrtStatus *(*create_cpu_memory)(int allocator, int kind, OrtMemoryInfo **);
    void *unused_70[8];
    OrtStatus *(*default_allocator)(OrtAllocator **);
    void *unused_79[17];
    void (*release_value)(OrtValue *);
} OrtApi;

_Static_assert(offsetof(OrtApi, set_intra_op_num_threads) == 24 * sizeof(void *), "the order is ONNX Runtime's");
_Static_assert(offsetof(OrtApi, create_tensor) == 49 * sizeof(void *), "the order is ONNX Runtime's");
_Static_assert(offsetof(OrtApi, release_value) == 96 * sizeof(void *), "the order is ONNX Runtime's");

typedef struct {
    const OrtApi *(*api)(uint32_t version);
    const char *(*version)(void);
} OrtApiBase;

const OrtApiBase *OrtGetApiBase(void);
