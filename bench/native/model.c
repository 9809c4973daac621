#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients.h"

enum { WARM_UPS = 30 };

size_t row_floats, answer_floats;
static const OrtApi *ort;
static OrtSession *session;
static OrtMemoryInfo *memory;
static char *input_name, *output_name;

static void must(OrtStatus *status) {
    if (status != NULL) die("ONNX Runtime", ort->message(status));
}

static size_t floats_of_a_row(OrtTypeInfo *type) {
    const OrtShape *shape;
    int64_t dimensions[2];
    must(ort->to_shape(type, &shape));
    must(ort->dimensions(shape, dimensions, 2));
    return (size_t)dimensions[1];
}

static void open_session(const char *path) {
    OrtEnv *env;
    OrtSessionOptions *options;
    OrtAllocator *allocator;
    OrtTypeInfo *input, *output;
    const OrtApiBase *base = OrtGetApiBase();
    if (strncmp(base->version(), "1.", 2) != 0 || (ort = base->api(1)) == NULL) die("ONNX Runtime", "not version 1");
    must(ort->create_env(LOG_WARNING, "native", &env));
    must(ort->disable_telemetry(env));
    must(ort->create_session_options(&options));
    must(ort->set_intra_op_num_threads(options, 1));
    must(ort->create_session(env, path, options, &session));
    must(ort->default_allocator(&allocator));
    must(ort->input_name(session, 0, allocator, &input_name));
    must(ort->output_name(session, 0, allocator, &output_name));
    must(ort->input_type(session, 0, &input));
    must(ort->output_type(session, 0, &output));
    must(ort->create_cpu_memory(ARENA, DEFAULT_MEMORY, &memory));
    row_floats = floats_of_a_row(input);
    answer_floats = floats_of_a_row(output);
}

static double seconds_of_a_run(float *rows, size_t batch, float *answers) {
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    run_model(rows, batch, answers);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) * 1e-9;
}

double open_model(const char *path, size_t batch) {
    open_session(path);
    float *rows = calloc(batch * row_floats, sizeof(float)), *answers = calloc(batch * answer_floats, sizeof(float));
    double quickest = seconds_of_a_run(rows, batch, answers);
    for (int at = 0; at < WARM_UPS; at++) {
        double seconds = seconds_of_a_run(rows, batch, answers);
        if (seconds < quickest) quickest = seconds;
    }
    free(rows);
    free(answers);
    return quickest;
}

static OrtValue *tensor(float *data, size_t count, size_t width) {
    const int64_t shape[] = {(int64_t)count, (int64_t)width};
    OrtValue *value;
    must(ort->create_tensor(memory, data, count * width * sizeof(float), shape, 2, FLOAT, &value));
    return value;
}

void run_model(float *rows, size_t count, float *answers) {
    OrtValue *input = tensor(rows, count, row_floats), *output = tensor(answers, count, answer_floats);
    const char *const inputs[] = {input_name}, *const outputs[] = {output_name};
    must(ort->run(session, NULL, inputs, (const OrtValue *const *)&input, 1, outputs, 1, &output));
    ort->release_value(input);
    ort->release_value(output);
}

void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(4);
}
