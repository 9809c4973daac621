/* A model with one float input and one float output, a row each. ONNX Runtime runs it on one thread. */
#include <stddef.h>

extern size_t row_floats, answer_floats; /* known once the model is open */

/* Open the model and warm it with batches of this size. Returns the seconds of the quickest run. */
double open_model(const char *path, size_t batch);

/* Run the model on `count` rows. Safe in any thread. */
void run_model(float *rows, size_t count, float *answers);

/* Print why, and end the process. Unacknowledged requests are not committed, so the next process answers them. */
_Noreturn void die(const char *what, const char *why);
