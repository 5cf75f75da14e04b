/* Events: sets of them, and waiting. The state tells all events of a device since the beginning, as
 * "TYPE:DATA TYPE:DATA ..."; who registers gets those that are added afterwards. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "objects.h"
#include "state.h"
#include "values.h"

#define SET "event set"
#define REGISTRATIONS_AT_MOST 64

typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} event_t;

struct registration {
    char id[96];
    void *handle;
    unsigned long long types;
    size_t seen;
};

struct set {
    struct registration registrations[REGISTRATIONS_AT_MOST];
    size_t count;
};

/* Reads the event at this place; false where there is none. */
static bool event_at(const struct section *device, size_t place, event_t *event)
{
    const char *text = section_text(device, "events");
    int length;
    while (text != NULL &&
           sscanf(text, "%llu:%llu%n", &event->type, &event->data, &length) == 2) {
        if (place-- == 0)
            return true;
        text += length;
    }
    return false;
}

static unsigned long long supported_types(const struct section *device)
{
    unsigned long long types = 0;
    section_number(device, "event_types", &types);
    return types;
}

EXPORT int nvmlEventSetCreate(void **set)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    *set = object_new(SET, sizeof(struct set));
    call_end();
    return SUCCESS;
}

EXPORT int nvmlEventSetFree(void *set)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    bool freed = object_free(SET, set);
    call_end();
    return freed ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    *types = supported_types(device);
    call_end();
    return SUCCESS;
}

EXPORT int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *pointer)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    struct set *set = object_of(SET, pointer);
    if (set == NULL || set->count == REGISTRATIONS_AT_MOST)
        error = INVALID_ARGUMENT;
    else if ((types & ~supported_types(device)) != 0)
        error = NOT_SUPPORTED; /* and none of the types is registered */
    else {
        struct registration *fresh = &set->registrations[set->count++];
        snprintf(fresh->id, sizeof(fresh->id), "%s", device->id);
        fresh->handle = handle;
        fresh->types = types;
        for (event_t skipped; event_at(device, fresh->seen, &skipped);)
            fresh->seen++;
    }
    call_end();
    return error;
}

/* The next event of a set; TIMEOUT where there is none, GPU_IS_LOST where a card of it is gone. */
static int next_event(struct state *state, struct set *set, event_t *event)
{
    if (set == NULL)
        return INVALID_ARGUMENT;
    for (size_t i = 0; i < set->count; i++) {
        struct registration *registration = &set->registrations[i];
        struct section *device = state_find(state, registration->id);
        if (device == NULL || section_text(device, "lost") != NULL ||
            handle_of(device) != registration->handle)
            return GPU_IS_LOST;
        while (event_at(device, registration->seen, event)) {
            registration->seen++;
            if ((event->type & registration->types) == 0)
                continue;
            event->device = registration->handle;
            event->gpu_instance = event->compute_instance = ~0u;
            return SUCCESS;
        }
    }
    return TIMEOUT;
}

EXPORT int nvmlEventSetWait_v2(void *pointer, event_t *event, unsigned int milliseconds)
{
    struct state *state;
    struct section *library;
    double started = monotonic_seconds();
    int result = call_library(__func__, &state, &library);
    if (result != 0)
        return result;
    for (;;) {
        result = next_event(state, object_of(SET, pointer), event);
        call_end();
        if (result != TIMEOUT || (monotonic_seconds() - started) * 1000 >= milliseconds)
            return result;
        pause_microseconds(1000);
        if (!call_again(&state))
            return UNINITIALIZED;
    }
}
