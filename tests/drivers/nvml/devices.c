/* The library as a whole, and what a device is: handles, names, MIG instances. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "state.h"
#include "values.h"

typedef struct {
    char legacy_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char id[32];
} pci_t;

/* The library itself. */

EXPORT int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return call_init();
}

EXPORT int nvmlInit_v2(void)
{
    return call_init();
}

EXPORT int nvmlShutdown(void)
{
    return call_shutdown();
}

EXPORT const char *nvmlErrorString(int code)
{
    return error_name(code);
}

static int library_text(const char *function, const char *key, const char *otherwise, char *text,
                        unsigned int length)
{
    struct state *state;
    struct section *library;
    int error = call_library(function, &state, &library);
    if (error != 0)
        return error;
    const char *found = section_text(library, key);
    snprintf(text, length, "%s", found != NULL ? found : otherwise);
    call_end();
    return SUCCESS;
}

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned int length)
{
    return library_text(__func__, "driver_version", "580.95.05", text, length);
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned int length)
{
    return library_text(__func__, "nvml_version", "13.580.95.05", text, length);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    *count = (unsigned int)listed_count(state);
    call_end();
    return SUCCESS;
}

/* From names to handles. */

static int give_handle(const char *function, struct section *device, void **handle)
{
    int error = device == NULL ? NOT_FOUND : lookup_error(device, function);
    if (error == 0)
        *handle = handle_of(device);
    call_end();
    return error;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    if (index >= listed_count(state)) {
        call_end();
        return INVALID_ARGUMENT;
    }
    struct section *device = listed_device(state, index);
    if (device == NULL) { /* listed at init, gone since */
        call_end();
        return GPU_IS_LOST;
    }
    return give_handle(__func__, device, handle);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    struct section *device = state_find(state, uuid);
    if (device != NULL && !is_listed(state, device))
        device = NULL;
    return give_handle(__func__, device, handle);
}

static bool parse_pci(const char *text, unsigned int parts[4])
{
    return text != NULL &&
           sscanf(text, "%x:%x:%x.%x", &parts[0], &parts[1], &parts[2], &parts[3]) == 4;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle)
{
    struct state *state;
    struct section *library, *found = NULL;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    unsigned int wanted[4], parts[4];
    if (!parse_pci(address, wanted)) {
        call_end();
        return INVALID_ARGUMENT;
    }
    for (size_t i = 0; found == NULL && i < listed_count(state); i++) {
        struct section *device = listed_device(state, i);
        if (parse_pci(section_text(device, "pci"), parts) &&
            memcmp(parts, wanted, sizeof(parts)) == 0)
            found = device;
    }
    return give_handle(__func__, found, handle);
}

/* What a device is. */

EXPORT int nvmlDeviceGetName(void *handle, char *text, unsigned int length)
{
    return device_text(__func__, handle, "name", text, length);
}

EXPORT int nvmlDeviceGetUUID(void *handle, char *text, unsigned int length)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    const char *shown = section_text(device, "shown_uuid");
    snprintf(text, length, "%s", shown != NULL ? shown : device->id);
    call_end();
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSerial(void *handle, char *text, unsigned int length)
{
    return device_text(__func__, handle, "serial", text, length);
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    const char *address = section_text(device, "pci");
    unsigned int parts[4];
    bool known = parse_pci(address, parts);
    if (known) {
        memset(pci, 0, sizeof(*pci));
        pci->domain = parts[0];
        pci->bus = parts[1];
        pci->device = parts[2];
        snprintf(pci->id, sizeof(pci->id), "%s", address);
        snprintf(pci->legacy_id, sizeof(pci->legacy_id), "%04X:%02X:%02X.0", parts[0] & 0xffff,
                 parts[1] & 0xff, parts[2] & 0xff);
    }
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

PLAIN_CALL_WITH_KEY(nvmlDeviceGetMinorNumber, "minor_number")

/* MIG. */

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
    return give_handle(__func__, found, instance);
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *instance, void **handle)
{
    struct state *state;
    struct section *section;
    int error = call_device(__func__, instance, &state, &section);
    if (error != 0)
        return error;
    return give_handle(__func__, state_parent(state, section), handle);
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
