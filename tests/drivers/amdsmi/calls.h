/* What every call of the fake AMD SMI library goes through: counting, and the faults asked for. */
#ifndef FAKE_AMDSMI_CALLS_H
#define FAKE_AMDSMI_CALLS_H

#include "../nvml/state.h"

#define EXPORT __attribute__((visibility("default")))

enum status {
    SUCCESS = 0,
    INVALID = 1,
    NOT_SUPPORTED = 2,
    NOT_YET_IMPLEMENTED = 3,
    TIMEOUT = 8,
    NOT_FOUND = 31,
    NOT_INITIALISED = 32,
    DRIVER_NOT_LOADED = 34,
};

/* Each returns 0 with the state locked, until `call_end`; any other result is the status to answer,
 * and nothing is locked. `section` is that of the library or of the handle. */
int call_library(const char *function, struct state **state, struct section **section);
int call_device(const char *function, const void *handle, struct section **section);
void call_end(void);

int call_init(void);
int call_shut_down(void);
int call_stub(const char *function);

/* With the state locked: the handle of a section, the same for as long as the process lives. */
void *handle_of(const struct section *section);

#endif
