/* Plain getters: one key of a device's section, as text or as a number; and handles. */
#ifndef FAKE_NVML_VALUES_H
#define FAKE_NVML_VALUES_H

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum result {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* Ends the call: the handle of a device that may be NULL, or its error. */
int give_handle(const char *function, struct state *state, struct section *device, void **handle);

int device_text(const char *function, void *handle, const char *key, char *text,
                unsigned int length);
int one_number(const char *function, void *handle, const char *key, unsigned int *value);
int one_counter(const char *function, void *handle, const char *key, unsigned long long *value);

/* An exported function that reads one unsigned number. */
#define PLAIN_CALL_WITH_KEY(function, key) \
    EXPORT int function(void *handle, unsigned int *value) \
    { \
        return one_number(__func__, handle, key, value); \
    }

#endif
