/* The library as a whole, and what a device is: handles, names, places. */

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
    return give_handle(__func__, state, device, handle);
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
    return give_handle(__func__, state, device, handle);
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
    return give_handle(__func__, state, found, handle);
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

/* Whether it is a whole card, one given to a virtual machine, or a part of one. */
PLAIN_CALL_WITH_KEY(nvmlDeviceGetVirtualizationMode, "virtualization")
