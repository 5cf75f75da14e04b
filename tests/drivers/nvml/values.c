#include "values.h"

#include <stdio.h>

#include "calls.h"

int give_handle(const char *function, struct state *state, struct section *device, void **handle)
{
    int error = device == NULL ? NOT_FOUND : lookup_error(state, device, function);
    if (error == 0)
        *handle = handle_of(device);
    call_end();
    return error;
}

int device_text(const char *function, void *handle, const char *key, char *text,
                       unsigned int length)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    const char *found = section_text(device, key);
    if (found != NULL)
        snprintf(text, length, "%s", found);
    call_end();
    return found != NULL ? SUCCESS : NOT_SUPPORTED;
}

int one_number(const char *function, void *handle, const char *key, unsigned int *value)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    unsigned long long number;
    bool known = section_number(device, key, &number);
    if (known)
        *value = (unsigned int)number;
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

int one_counter(const char *function, void *handle, const char *key,
                       unsigned long long *value)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    bool known = section_number(device, key, value);
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}
