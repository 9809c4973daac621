/* A model of one float input and one float output, a row each, run by ONNX Runtime on one thread. */
#include <stddef.h>

extern size_t row_floats, answer_floats; /* known once the model is open */

/* Open it and warm it with batches of this size; the seconds that one takes, the quickest of some. */
double open_model(const char *path, size_t batch);

/* Run so many rows. Safe in any thread. */
void run_model(float *rows, size_t count, float *answers);

/* Print why, and end the process: what is not acknowledged is not committed, and the next one answers it. */
_Noreturn void die(const char *what, const char *why);
