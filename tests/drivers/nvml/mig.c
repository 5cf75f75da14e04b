/* MIG: the instances of a card, each of which has a handle that is used like a card's. */

#include <stdint.h>
#include <string.h>

#include "calls.h"
#include "state.h"
#include "values.h"

typedef struct {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned int gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
} attributes_t;

EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned int *now, unsigned int *pending)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    unsigned long long mode = 0, next;
    bool known = section_number(device, "mig_mode", &mode);
    *now = (unsigned int)mode;
    *pending = section_number(device, "mig_pending", &next) ? (unsigned int)next : *now;
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    *count = section_flag(device, "mig_mode") ? 7 : 0;
    call_end();
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **instance)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    bool sliced = section_flag(device, "mig_mode");
    struct section *found = sliced ? state_instance(state, device, index) : NULL;
    return give_handle(__func__, state, found, instance);
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *instance, void **handle)
{
    struct state *state;
    struct section *section;
    int error = call_device(__func__, instance, &state, &section);
    if (error != 0)
        return error;
    return give_handle(__func__, state, state_parent(state, section), handle);
}

EXPORT int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned int *is_instance)
{
    struct state *state;
    struct section *section;
    int error = call_device(__func__, handle, &state, &section);
    if (error != 0)
        return error;
    *is_instance = strcmp(section->kind, "mig") == 0;
    call_end();
    return SUCCESS;
}

PLAIN_CALL_WITH_KEY(nvmlDeviceGetGpuInstanceId, "gpu_instance_id")
PLAIN_CALL_WITH_KEY(nvmlDeviceGetComputeInstanceId, "compute_instance_id")

EXPORT int nvmlDeviceGetAttributes_v2(void *handle, attributes_t *attributes)
{
    struct state *state;
    struct section *section;
    int error = call_device(__func__, handle, &state, &section);
    if (error != 0)
        return error;
    unsigned long long slices, of_compute, processors = 0, memory = 0;
    bool known = strcmp(section->kind, "mig") == 0 &&
                 section_number(section, "gpu_instance_slices", &slices);
    if (known) {
        memset(attributes, 0, sizeof(*attributes));
        section_number(section, "multiprocessors", &processors);
        section_number(section, "memory_total", &memory);
        attributes->multiprocessors = (unsigned int)processors;
        attributes->gpu_instance_slices = (unsigned int)slices;
        bool whole = !section_number(section, "compute_instance_slices", &of_compute);
        attributes->compute_instance_slices = (unsigned int)(whole ? slices : of_compute);
        attributes->memory_mib = memory >> 20;
    }
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}
