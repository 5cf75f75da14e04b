#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

EXPORT int amdsmi_init(uint64_t flags)
{
    (void)flags;
    return call_init();
}

EXPORT int amdsmi_shut_down(void)
{
    return call_shut_down();
}

struct version {
    uint32_t major, minor, release;
    const char *build;
};

EXPORT int amdsmi_get_lib_version(struct version *version)
{
    *version = (struct version){26, 0, 2, "fake"};
    return SUCCESS;
}

/* Each device is a socket of its own, with one processor. */
EXPORT int amdsmi_get_socket_handles(uint32_t *count, void **sockets)
{
    struct state *state;
    struct section *library;
    int status = call_library(__func__, &state, &library);
    if (status != SUCCESS)
        return status;
    size_t known = state_device_count(state);
    for (size_t i = 0; sockets != NULL && i < known && i < *count; i++)
        sockets[i] = handle_of(state_device(state, i));
    *count = (uint32_t)known;
    call_end();
    return SUCCESS;
}

EXPORT int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **processors)
{
    struct section *device;
    int status = call_device(__func__, socket, &device);
    if (status != SUCCESS)
        return status;
    if (processors != NULL && *count > 0)
        processors[0] = socket;
    *count = 1;
    call_end();
    return SUCCESS;
}

EXPORT int amdsmi_get_gpu_device_bdf(void *handle, uint64_t *bdf)
{
    struct section *device;
    int status = call_device(__func__, handle, &device);
    if (status != SUCCESS)
        return status;
    const char *text = section_text(device, "bdf");
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    if (text == NULL || sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        status = NOT_SUPPORTED;
    *bdf = (uint64_t)domain << 16 | (uint64_t)bus << 8 | (uint64_t)slot << 3 | function;
    call_end();
    return status;
}

EXPORT int amdsmi_get_gpu_device_uuid(void *handle, uint32_t *length, char *uuid)
{
    struct section *device;
    int status = call_device(__func__, handle, &device);
    if (status != SUCCESS)
        return status;
    const char *text = section_text(device, "uuid");
    snprintf(uuid, *length, "%s", text != NULL ? text : "");
    call_end();
    return text != NULL ? SUCCESS : NOT_SUPPORTED;
}

/* A key as a number, or all bits set where it is missing. */
static uint64_t number(const struct section *device, const char *key)
{
    unsigned long long value;
    return section_number(device, key, &value) ? value : UINT64_MAX;
}

static bool has_any(const struct section *device, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (section_text(device, keys[i]) != NULL)
            return true;
    return false;
}

struct activity {
    uint32_t gfx, umc, mm, reserved[13];
};

EXPORT int amdsmi_get_gpu_activity(void *handle, struct activity *activity)
{
    static const char *const KEYS[] = {"gfx_activity", "umc_activity", "mm_activity"};
    struct section *device;
    int status = call_device(__func__, handle, &device);
    if (status != SUCCESS)
        return status;
    /* The library fills these from fields of 16 bits. */
    activity->gfx = (uint32_t)(number(device, KEYS[0]) & 0xFFFF);
    activity->umc = (uint32_t)(number(device, KEYS[1]) & 0xFFFF);
    activity->mm = (uint32_t)(number(device, KEYS[2]) & 0xFFFF);
    status = has_any(device, KEYS, 3) ? SUCCESS : NOT_SUPPORTED;
    call_end();
    return status;
}

static int one(const char *function, void *handle, const char *key, uint64_t *value)
{
    struct section *device;
    int status = call_device(function, handle, &device);
    if (status != SUCCESS)
        return status;
    unsigned long long found;
    bool known = section_number(device, key, &found);
    if (known)
        *value = found;
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

static const char *memory_key(uint32_t type, const char *vram, const char *gtt)
{
    return type == 0 ? vram : type == 2 ? gtt : "no such memory";
}

EXPORT int amdsmi_get_gpu_memory_total(void *handle, uint32_t type, uint64_t *bytes)
{
    return one(__func__, handle, memory_key(type, "vram_total", "gtt_total"), bytes);
}

EXPORT int amdsmi_get_gpu_memory_usage(void *handle, uint32_t type, uint64_t *bytes)
{
    return one(__func__, handle, memory_key(type, "vram_used", "gtt_used"), bytes);
}

EXPORT int amdsmi_get_temp_metric(void *handle, uint32_t sensor, uint32_t metric, int64_t *celsius)
{
    static const char *const SENSORS[] = {"edge", "hotspot", "vram", "hbm_0",
                                          "hbm_1", "hbm_2", "hbm_3"};
    char key[64];
    const char *name = sensor < 7 ? SENSORS[sensor] : "unknown";
    snprintf(key, sizeof(key), "temperature_%s_%u", name, metric);
    return one(__func__, handle, key, (uint64_t *)celsius);
}

struct power_info {
    uint64_t socket;
    uint32_t current, average;
    uint64_t voltages[3];
    uint32_t limit;
    uint64_t reserved[18];
};

EXPORT int amdsmi_get_power_info(void *handle, struct power_info *info)
{
    static const char *const KEYS[] = {"socket_power", "current_power", "average_power"};
    struct section *device;
    int status = call_device(__func__, handle, &device);
    if (status != SUCCESS)
        return status;
    memset(info, 0xFF, sizeof(*info));
    info->socket = number(device, KEYS[0]) & 0xFFFF;
    info->current = (uint32_t)(number(device, KEYS[1]) & 0xFFFF);
    info->average = (uint32_t)(number(device, KEYS[2]) & 0xFFFF);
    status = has_any(device, KEYS, 3) ? SUCCESS : NOT_SUPPORTED;
    call_end();
    return status;
}

struct power_cap_info {
    uint64_t cap, initial, dpm, least, most, reserved[3];
};

EXPORT int amdsmi_get_power_cap_info(void *handle, uint32_t sensor, struct power_cap_info *info)
{
    (void)sensor;
    memset(info, 0xFF, sizeof(*info));
    return one(__func__, handle, "power_cap", &info->cap);
}

EXPORT int amdsmi_get_energy_count(void *handle, uint64_t *count, float *microjoules,
                                   uint64_t *nanoseconds)
{
    *microjoules = 15.259f;
    *nanoseconds = (uint64_t)(monotonic_seconds() * 1e9);
    return one(__func__, handle, "energy_count", count);
}

struct clock_info {
    uint32_t now, least, most;
    uint8_t locked, deep_sleep;
    uint32_t reserved[4];
};

EXPORT int amdsmi_get_clock_info(void *handle, uint32_t type, struct clock_info *info)
{
    uint64_t megahertz = 0;
    const char *key = type == 0 ? "clock_gfx" : type == 4 ? "clock_mem" : "no such clock";
    int status = one(__func__, handle, key, &megahertz);
    memset(info, 0xFF, sizeof(*info));
    info->now = (uint32_t)megahertz;
    return status;
}

struct error_count {
    uint64_t correctable, uncorrectable, deferred, reserved[5];
};

EXPORT int amdsmi_get_gpu_ecc_count(void *handle, uint64_t block, struct error_count *count)
{
    memset(count, 0, sizeof(*count));
    if (block != 1) /* UMC, the memory controllers */
        return NOT_SUPPORTED;
    return one(__func__, handle, "ecc_uncorrected", &count->uncorrectable);
}
