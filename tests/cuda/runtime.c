// Stands for CUDA 13 beneath ONNX Runtime's own CUDA provider: its runtime, and the calls of cuBLAS and cuDNN before
// the first kernel. The device's memory is this machine's, a stream is a queue, and kernels cannot run.
//
// It is as late as CUDA's rules allow. A GPU may do a stream's work at any time until a call waits for it, and mostly
// does it at once; here it is done when a call waits, and never before. So code that reads too early, or overwrites
// memory that is still to be read, meets rubbish each time, and not once a week. Other streams' work may be done
// meanwhile, or not: tests choose. The rules are in "API synchronization behavior" and "Stream synchronization
// behavior" of CUDA's runtime API:
//
//   copy                                 | is done
//   cudaMemcpy from or to the host       | when it returns, after all earlier work of the default stream
//   cudaMemcpyAsync to pageable memory   | when it returns, after all earlier work of its stream
//   cudaMemcpyAsync from pageable memory | when its stream is waited for; the source has been read when it returns
//   any other cudaMemcpyAsync            | when its stream is waited for
//
// NVIDIA's headers are not needed: handles are addresses, a code is a number, and unused parameters at a function's end
// are left out. `build.py` writes a file with all other functions that the provider is linked against; each of them
// fails, so that a new need shows, and no kernel counts as run.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, DRIVER_TOO_OLD = 35, INVALID_DEVICE = 101 };
enum { ILLEGAL_ADDRESS = 700, NOT_SUPPORTED = 801, UNKNOWN = 999 };
enum { DEVICES = 2, NON_BLOCKING = 1, TO_DEVICE = 1, RUBBISH = 0xCD, FUNCTIONS = 64 };

struct function {
    const char *name;
    int calls;
    int code;  // its failure, after `after` more calls
    int after;
};

// A copy that is still to be done. `read` holds the part of a pageable source that was already read.
struct copy {
    struct copy *next;
    void *to;
    const void *from;
    size_t size;
    void *read;
};

struct stream {
    struct stream *next;
    struct copy *first;
    struct copy **end;
};

enum kind { PAGE_LOCKED, ON_DEVICE, REGISTERED };  // the last is page-locked memory that was there before

struct block {
    struct block *next;
    char *start;
    size_t size;
    enum kind kind;
    int device;  // the asking thread's
};

// One lock for everything: a stand-in need not be quick.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct function functions[FUNCTIONS];
static struct stream default_stream = {.end = &default_stream.first};
static struct stream *streams = &default_stream;
static struct block *blocks;

// Tests set these: a wait serves all other streams first, or none of them; and each wait takes at least so long.
int stand_in_others_first;
int stand_in_microseconds;

// The environment sets these, for a process that no test can call into.
static const char *gone;    // while there is a file of this name, the device is lost
static const char *poison;  // a number: a copy to the device that has this INT64 kills the context
static int dead;            // the error with which each call fails from then on

// CUDA keeps these per thread.
static __thread int current_device;
static __thread int last_error;

static struct function *function_of(const char *name) {
    for (struct function *function = functions; function < functions + FUNCTIONS; function++) {
        function->name = function->name ? function->name : strdup(name);
        if (!strcmp(function->name, name)) {
            return function;
        }
    }
    abort();
}

// Returns the code with which the function must fail, without doing its work; else 0.
static int begin(const char *name) {
    pthread_mutex_lock(&lock);
    struct function *function = function_of(name);
    function->calls++;
    if (gone && !access(gone, F_OK)) {
        dead = UNKNOWN;
    }
    if (dead) {
        return dead;
    }
    return function->code && function->after-- <= 0 ? function->code : 0;
}

// A failure stays the thread's last error until it is asked for.
static int end(int code) {
    last_error = code ? code : last_error;
    pthread_mutex_unlock(&lock);
    return code;
}

// ---- What tests steer and ask ---------------------------------------------------------------------------------------

void stand_in_fail(const char *name, int code, int after) {
    pthread_mutex_lock(&lock);
    function_of(name)->code = code;
    function_of(name)->after = after;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void fail_as_told(void) {
    gone = getenv("STAND_IN_GONE");
    poison = getenv("STAND_IN_POISON");
}

int stand_in_calls(const char *name) {
    pthread_mutex_lock(&lock);
    int calls = function_of(name)->calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

size_t stand_in_bytes(int device, enum kind kind) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (struct block *block = blocks; block; block = block->next) {
        bytes += block->device == device && block->kind == kind ? block->size : 0;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

// ---- Streams --------------------------------------------------------------------------------------------------------

// 0, 1 and 2 are names of the default stream.
static struct stream *stream_of(void *handle) {
    return (uintptr_t)handle <= 2 ? &default_stream : handle;
}

static void give(struct stream *stream, struct copy copy) {
    struct copy *given = malloc(sizeof *given);
    *given = copy;
    *stream->end = given;
    stream->end = &given->next;
}

static void finish(struct stream *stream) {
    while (stream->first) {
        struct copy *copy = stream->first;
        memcpy(copy->to, copy->from, copy->size);
        stream->first = copy->next;
        free(copy->read);
        free(copy);
    }
    stream->end = &stream->first;
}

static void finish_others(const struct stream *one) {
    for (struct stream *stream = streams; stream; stream = stream->next) {
        if (stream != one) {
            finish(stream);
        }
    }
}

static int wait_for(const char *name, struct stream *stream, int others) {
    int code = begin(name);
    if (!code && others) {
        finish_others(stream);
    }
    if (!code) {
        finish(stream);
    }
    return end(code);
}

int cudaStreamSynchronize(void *handle) {
    usleep(stand_in_microseconds);
    return wait_for(__func__, stream_of(handle), stand_in_others_first);
}

int cudaDeviceSynchronize(void) { return wait_for(__func__, &default_stream, 1); }
int cudaStreamDestroy(void *handle) { return wait_for(__func__, stream_of(handle), 0); }  // it stays in the list, empty

// Refuses streams that synchronise with the default stream: ONNX Runtime makes none.
int cudaStreamCreateWithFlags(void **handle, unsigned flags) {
    int code = begin(__func__);
    if (!code && flags != NON_BLOCKING) {
        code = NOT_SUPPORTED;
    }
    if (!code) {
        struct stream *stream = calloc(1, sizeof *stream);
        *stream = (struct stream){.next = streams, .end = &stream->first};
        *handle = streams = stream;
    }
    return end(code);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// The pointer to the block that holds this address; it points to NULL for pageable memory.
static struct block **block_of(const void *address) {
    struct block **at = &blocks;
    while (*at && (uintptr_t)address - (uintptr_t)(*at)->start >= (*at)->size) {
        at = &(*at)->next;
    }
    return at;
}

// Memory is new and full of rubbish.
static int take(const char *name, void **address, size_t size, enum kind kind) {
    int code = begin(name);
    if (!code) {
        struct block *block = malloc(sizeof *block);
        *block = (struct block){blocks, aligned_alloc(256, (size + 255) / 256 * 256), size, kind, current_device};
        memset(block->start, RUBBISH, size);
        blocks = block;
        *address = block->start;
    }
    return end(code);
}

// Fills returned memory with rubbish and never uses it again, so that late readers meet rubbish. A device's memory is
// given back when all streams are done; page-locked memory does not promise that.
static int drop(const char *name, void *address) {
    int code = begin(name);
    struct block **at = block_of(address);
    struct block *block = *at;
    if (!code && address && !block) {
        code = INVALID_VALUE;
    } else if (!code && address) {
        if (block->kind == ON_DEVICE) {
            finish_others(NULL);
        }
        memset(block->start, RUBBISH, block->size);
        *at = block->next;
        free(block);
    }
    return end(code);
}

int cudaMalloc(void **address, size_t size) { return take(__func__, address, size, ON_DEVICE); }
int cudaHostAlloc(void **address, size_t size) { return take(__func__, address, size, PAGE_LOCKED); }
int cudaFree(void *address) { return drop(__func__, address); }
int cudaFreeHost(void *address) { return drop(__func__, address); }

int cudaHostRegister(void *address, size_t size, unsigned flags) {
    int code = begin(__func__);
    if (!code && (!size || flags)) {
        code = INVALID_VALUE;
    }
    if (!code) {
        struct block *block = malloc(sizeof *block);
        *block = (struct block){blocks, address, size, REGISTERED, current_device};
        blocks = block;
    }
    return end(code);
}

int cudaHostUnregister(void *address) {
    int code = begin(__func__);
    struct block **at = block_of(address);
    struct block *block = *at;
    if (!code && (!block || block->start != address || block->kind != REGISTERED)) {
        code = INVALID_VALUE;
    } else if (!code) {
        *at = block->next;
        free(block);
    }
    return end(code);
}

int cudaMemGetInfo(size_t *available, size_t *total) {
    *available = *total = (size_t)8 << 30;
    return end(begin(__func__));
}

int cudaMemcpy(void *to, const void *from, size_t size) {
    int code = begin(__func__);
    if (!code) {
        finish(&default_stream);
        memcpy(to, from, size);
    }
    return end(code);
}

static int is_poisoned(const int64_t *numbers, size_t size) {
    for (size_t at = 0; poison && at < size / sizeof *numbers; at++) {
        if (numbers[at] == atoll(poison)) {
            return 1;
        }
    }
    return 0;
}

int cudaMemcpyAsync(void *to, const void *from, size_t size, int direction, void *handle) {
    int code = begin(__func__);
    if (!code && direction == TO_DEVICE && is_poisoned(from, size)) {
        code = dead = ILLEGAL_ADDRESS;
    }
    struct copy copy = {.to = to, .from = from, .size = size};
    if (!code && size && (*block_of(from) != *block_of((const char *)from + size - 1))) {
        code = INVALID_VALUE;  // only a part is page-locked
    }
    if (!code && !*block_of(from)) {
        copy.from = copy.read = memcpy(malloc(size), from, size);
    }
    if (!code) {
        give(stream_of(handle), copy);
    }
    if (!code && !*block_of(to)) {
        finish(stream_of(handle));
    }
    return end(code);
}

// ---- The devices ----------------------------------------------------------------------------------------------------

static int tell(const char *name, int *value, int is) {
    *value = is;
    return end(begin(name));
}

int cudaGetDeviceCount(int *number) { return tell(__func__, number, DEVICES); }
int cudaGetDevice(int *device) { return tell(__func__, device, current_device); }

int cudaSetDevice(int device) {
    int code = begin(__func__);
    if (!code && (device < 0 || device >= DEVICES)) {
        code = INVALID_DEVICE;
    }
    current_device = code ? current_device : device;
    return end(code);
}

// No property matters where no kernel runs. 1008 is the size of CUDA 13's cudaDeviceProp.
int cudaGetDeviceProperties(void *properties) {
    memset(properties, 0, 1008);
    return end(begin(__func__));
}

int cudaGetLastError(void) {
    int code = last_error;
    last_error = 0;
    return code;
}

const char *cudaGetErrorString(int code) {
    return code == OUT_OF_MEMORY     ? "out of memory"
           : code == DRIVER_TOO_OLD  ? "CUDA driver version is insufficient for CUDA runtime version"
           : code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
           : code == UNKNOWN         ? "unknown error"
           : code == NOT_SUPPORTED   ? "operation not supported"
                                     : "some other error";
}

// The body of the functions in the file that `build.py` writes.
int stand_in_lacks(const char *name) {
    begin(name);
    return end(NOT_SUPPORTED);
}

// The provider's library registers its kernels by these calls while it is loaded.
void __cudaRegisterFatBinary(void) {}
void __cudaRegisterFatBinaryEnd(void) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
void __cudaUnregisterFatBinary(void) {}

// ---- cuBLAS and cuDNN: each concurrent run gets handles of its own --------------------------------------------------

static int make(const char *name, void **handle) {
    *handle = functions;  // no more than an address
    return end(begin(name));
}

int cublasCreate_v2(void **handle) { return make(__func__, handle); }
int cublasLtCreate(void **handle) { return make(__func__, handle); }
int cudnnCreate(void **handle) { return make(__func__, handle); }
int cublasSetStream_v2(void) { return 0; }
int cudnnSetStream(void) { return 0; }
int cublasDestroy_v2(void) { return 0; }
int cublasLtDestroy(void) { return 0; }
int cudnnDestroy(void) { return 0; }
const char *cublasGetStatusString(int code) { return cudaGetErrorString(code); }
