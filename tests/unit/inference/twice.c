/* A library with one operator, test.ops.Twice(float) -> float, by ONNX Runtime's C API without its header.
   Version 1 of the API is a table of functions whose places never change. */
#include <stddef.h>
#include <stdint.h>

typedef void *(*Function)();
enum {
  CREATE_DOMAIN = 26, ADD_OP = 27, ADD_DOMAIN = 28,
  DATA = 51, DIMENSION_COUNT = 61, DIMENSIONS = 62, ELEMENT_COUNT = 64, SHAPE = 65,
  INPUT = 90, OUTPUT = 91, RELEASE_SHAPE = 99
};
static const Function *api;

static void *create(const void *op, const void *functions, const void *info) { return (void *)op; }
static const char *name(const void *op) { return "Twice"; }
static const char *provider(const void *op) { return NULL; }
static int type(const void *op, size_t at) { return 1; /* float */ }
static size_t one(const void *op) { return 1; }
static void destroy(void *kernel) {}
static int required(const void *op, size_t at) { return 0; }

static void compute(void *kernel, void *context) {
  const void *input;
  void *output, *shape;
  float *from, *to;
  int64_t dimensions[8];
  size_t count, elements;
  api[INPUT](context, (size_t)0, &input);
  api[SHAPE](input, &shape);
  api[DIMENSION_COUNT](shape, &count);
  api[DIMENSIONS](shape, dimensions, count);
  api[ELEMENT_COUNT](shape, &elements);
  api[RELEASE_SHAPE](shape);
  api[OUTPUT](context, (size_t)0, dimensions, count, &output);
  api[DATA]((void *)input, (void **)&from);
  api[DATA](output, (void **)&to);
  for (size_t at = 0; at < elements; at++) to[at] = 2 * from[at];
}

static const struct {
  uint32_t version;
  void *functions[11];
} twice = {8, {create, name, provider, type, one, type, one, compute, destroy, required, required}};

void *RegisterCustomOps(void *options, const void *(**base)(uint32_t)) {
  void *domain, *failure;
  api = base[0](1);
  if ((failure = api[CREATE_DOMAIN]("test.ops", &domain))) return failure;
  if ((failure = api[ADD_OP](domain, &twice))) return failure;
  return api[ADD_DOMAIN](options, domain);
}
