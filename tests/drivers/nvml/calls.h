/* What every call of the fake driver goes through: counting, waiting, and the errors asked for. */
#ifndef FAKE_NVML_CALLS_H
#define FAKE_NVML_CALLS_H

#include "state.h"

/* Each function below returns 0 with the state locked, until `call_end`; any other result is the
 * error to answer, and nothing is locked. `section` is that of the library or of the handle. */
int call_library(const char *function, struct state **state, struct section **section);
int call_device(const char *function, void *handle, struct state **state, struct section **section);
void call_end(void);

/* Locks and reads the state again within a call that waits for something; false, and nothing
 * locked, once the library is shut down or its state is gone. */
bool call_again(struct state **state);

/* Counts something that is no call, such as a misuse. Nothing may be locked. */
void call_note(const char *what);

/* Init and shutdown count themselves and keep the number of users of the library. */
int call_init(void);
int call_shutdown(void);

/* With the state locked: the devices that the library lists (as at the first init, if the state
 * asks for that), and the handle of a section. */
size_t listed_count(struct state *state);
struct section *listed_device(struct state *state, size_t index);
bool is_listed(struct state *state, const struct section *device);
void *handle_of(const struct section *section);

/* With the state locked: the error that a look-up of this device answers, or 0. The key for errors
 * of all functions means those that take a handle. */
int lookup_error(struct state *state, struct section *device, const char *function);

void pause_microseconds(double microseconds);

#endif
