/* Level Zero's loader as far as Sysman is read by accelscale: what it answers stands in a file. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

#define EXPORTED __attribute__((visibility("default")))

enum { SUCCESS = 0, UNINITIALIZED = 0x78000001, INVALID_NULL_HANDLE = 0x78000005 };

/* A handle is a number: which kind of thing, of which device, the how-manieth. */
enum kind { DRIVER = 1, DEVICE, ENGINE, MEMORY, POWER, FREQUENCY, TEMPERATURE };

struct thing {
    int device;
    int index;
};

static uintptr_t handle_of(enum kind kind, int device, int index)
{
    return ((uintptr_t)kind << 24) | ((uintptr_t)device << 16) | ((uintptr_t)index << 8) | 1;
}

static unsigned inits;

/* How often zesInit was called in this process. */
EXPORTED unsigned fake_inits(void);
EXPORTED unsigned fake_inits(void)
{
    return inits;
}

/* Begins a call on a thing: takes the lock if it answers SUCCESS. */
static int begin(enum kind kind, uintptr_t handle, const char *name, struct thing *thing)
{
    if ((enum kind)(handle >> 24) != kind)
        return INVALID_NULL_HANDLE;
    *thing = (struct thing){(int)(handle >> 16 & 0xff), (int)(handle >> 8 & 0xff)};
    if (inits == 0 || !state_begin())
        return UNINITIALIZED;
    int error = (int)state_number("%d.error", thing->device);
    if (error == 0)
        error = (int)state_number("%d.error.%s", thing->device, name);
    if (error == 0)
        error = (int)state_number("%d.%s.%d.error", thing->device, name, thing->index);
    if (error != 0)
        state_end();
    return error;
}

static int list(uintptr_t device, enum kind kind, const char *name, uint32_t *count,
                uintptr_t *handles)
{
    struct thing thing;
    int error = begin(DEVICE, device, name, &thing);
    if (error != 0)
        return error;
    uint32_t there = (uint32_t)state_number("%d.%s", thing.device, name);
    state_end();
    if (handles == NULL || *count > there)
        *count = there;
    for (uint32_t i = 0; handles != NULL && i < *count; i++)
        handles[i] = handle_of(kind, thing.device, (int)i);
    return SUCCESS;
}

EXPORTED int zesInit(uint32_t flags);
EXPORTED int zesInit(uint32_t flags)
{
    (void)flags;
    if (!state_begin())
        return UNINITIALIZED;
    int answer = (int)state_number("init");
    unsigned seconds = (unsigned)state_number("init.hang");
    bool crashes = state_number("init.crash") != 0;
    const char *said = state_text("init.print");
    if (said != NULL) {
        printf("%s\n", said);
        fprintf(stderr, "%s\n", said);
        fflush(stdout);
    }
    state_end();
    if (crashes)
        abort();
    sleep(seconds);
    inits += answer == SUCCESS;
    return answer;
}

EXPORTED int zesDriverGet(uint32_t *count, uintptr_t *drivers);
EXPORTED int zesDriverGet(uint32_t *count, uintptr_t *drivers)
{
    if (inits == 0 || !state_begin())
        return UNINITIALIZED;
    bool there = state_number("devices") > 0;
    state_end();
    *count = there;
    if (drivers != NULL && there)
        drivers[0] = handle_of(DRIVER, 0, 0);
    return SUCCESS;
}

EXPORTED int zesDeviceGet(uintptr_t driver, uint32_t *count, uintptr_t *devices);
EXPORTED int zesDeviceGet(uintptr_t driver, uint32_t *count, uintptr_t *devices)
{
    if (driver != handle_of(DRIVER, 0, 0))
        return INVALID_NULL_HANDLE;
    if (!state_begin())
        return UNINITIALIZED;
    uint32_t there = (uint32_t)state_number("devices");
    state_end();
    if (devices == NULL || *count > there)
        *count = there;
    for (uint32_t i = 0; devices != NULL && i < *count; i++)
        devices[i] = handle_of(DEVICE, (int)i, 0);
    return SUCCESS;
}

struct core_properties {
    int32_t stype;
    void *next;
    int32_t type;
    uint32_t vendor, device, flags, subdevice, clock;
    uint64_t largest_allocation;
    uint32_t contexts, priority, threads, simd, units, subslices, slices;
    uint64_t timer;
    uint32_t valid_bits, kernel_valid_bits;
    unsigned char uuid[16];
    char name[256];
};

struct device_properties {
    int32_t stype;
    void *next;
    struct core_properties core;
    uint32_t subdevices;
    char serial[64], board[64], brand[64], model[64], vendor[64], driver[64];
};

EXPORTED int zesDeviceGetProperties(uintptr_t device, struct device_properties *properties);
EXPORTED int zesDeviceGetProperties(uintptr_t device, struct device_properties *properties)
{
    struct thing thing;
    int error = begin(DEVICE, device, "properties", &thing);
    if (error != 0)
        return error;
    const char *name = state_text("%d.name", thing.device);
    snprintf(properties->core.name, sizeof(properties->core.name), "%s", name != NULL ? name : "");
    properties->core.type = 1;
    properties->core.vendor = 0x8086;
    memset(properties->core.uuid, (int)state_number("%d.uuid", thing.device), 16);
    state_end();
    return SUCCESS;
}

struct pci_properties {
    int32_t stype;
    void *next;
    uint32_t domain, bus, device, function;
    struct {
        int32_t generation, width;
        int64_t bandwidth;
    } speed;
    uint8_t counts_bytes, counts_packets, counts_replays;
};

EXPORTED int zesDevicePciGetProperties(uintptr_t device, struct pci_properties *properties);
EXPORTED int zesDevicePciGetProperties(uintptr_t device, struct pci_properties *properties)
{
    struct thing thing;
    int error = begin(DEVICE, device, "pci", &thing);
    if (error != 0)
        return error;
    const char *address = state_text("%d.address", thing.device);
    if (address == NULL || sscanf(address, "%x:%x:%x.%x", &properties->domain, &properties->bus,
                                  &properties->device, &properties->function) != 4)
        abort();
    properties->counts_bytes = state_text("%d.pci.receive", thing.device) != NULL;
    state_end();
    return SUCCESS;
}

struct pci_stats {
    uint64_t timestamp, replays, packets, received, sent;
};

EXPORTED int zesDevicePciGetStats(uintptr_t device, struct pci_stats *stats);
EXPORTED int zesDevicePciGetStats(uintptr_t device, struct pci_stats *stats)
{
    struct thing thing;
    int error = begin(DEVICE, device, "pci", &thing);
    if (error != 0)
        return error;
    stats->received = state_number("%d.pci.receive", thing.device);
    stats->sent = state_number("%d.pci.transmit", thing.device);
    state_end();
    return SUCCESS;
}

EXPORTED int zesDeviceEnumEngineGroups(uintptr_t device, uint32_t *count, uintptr_t *groups);
EXPORTED int zesDeviceEnumEngineGroups(uintptr_t device, uint32_t *count, uintptr_t *groups)
{
    return list(device, ENGINE, "engines", count, groups);
}

struct part_properties {
    int32_t stype;
    void *next;
    int32_t type;
    uint8_t on_subdevice;
    uint32_t subdevice;
};

/* What the properties of an engine, a clock, a sensor and a memory module have in common. */
static int part_properties(enum kind kind, uintptr_t part, const char *name,
                           struct part_properties *properties, struct thing *thing)
{
    int error = begin(kind, part, name, thing);
    if (error != 0)
        return error;
    properties->type = (int32_t)state_number("%d.%s.%d.type", thing->device, name, thing->index);
    properties->on_subdevice =
        state_text("%d.%s.%d.subdevice", thing->device, name, thing->index) != NULL;
    properties->subdevice =
        (uint32_t)state_number("%d.%s.%d.subdevice", thing->device, name, thing->index);
    return SUCCESS;
}

EXPORTED int zesEngineGetProperties(uintptr_t engine, struct part_properties *properties);
EXPORTED int zesEngineGetProperties(uintptr_t engine, struct part_properties *properties)
{
    struct thing thing;
    int error = part_properties(ENGINE, engine, "engines", properties, &thing);
    if (error == 0)
        state_end();
    return error;
}

struct engine_stats {
    uint64_t active, timestamp;
};

EXPORTED int zesEngineGetActivity(uintptr_t engine, struct engine_stats *stats);
EXPORTED int zesEngineGetActivity(uintptr_t engine, struct engine_stats *stats)
{
    struct thing thing;
    int error = begin(ENGINE, engine, "engines", &thing);
    if (error != 0)
        return error;
    error = (int)state_number("%d.engines.%d.activity.error", thing.device, thing.index);
    stats->active = state_number("%d.engines.%d.active", thing.device, thing.index);
    stats->timestamp = state_number("%d.engines.%d.timestamp", thing.device, thing.index);
    state_end();
    return error;
}

EXPORTED int zesDeviceEnumMemoryModules(uintptr_t device, uint32_t *count, uintptr_t *modules);
EXPORTED int zesDeviceEnumMemoryModules(uintptr_t device, uint32_t *count, uintptr_t *modules)
{
    return list(device, MEMORY, "memories", count, modules);
}

struct memory_properties { /* begins like part_properties, without the padding at its end */
    int32_t stype;
    void *next;
    int32_t type;
    uint8_t on_subdevice;
    uint32_t subdevice;
    int32_t location;
    uint64_t physical_size;
    int32_t bus_width, channels;
};

EXPORTED int zesMemoryGetProperties(uintptr_t module, struct memory_properties *properties);
EXPORTED int zesMemoryGetProperties(uintptr_t module, struct memory_properties *properties)
{
    struct thing thing;
    struct part_properties part;
    int error = part_properties(MEMORY, module, "memories", &part, &thing);
    if (error != 0)
        return error;
    properties->type = part.type;
    properties->on_subdevice = part.on_subdevice;
    properties->subdevice = part.subdevice;
    const char *location = state_text("%d.memories.%d.location", thing.device, thing.index);
    properties->location = location == NULL || strcmp(location, "system") != 0;
    state_end();
    return SUCCESS;
}

struct memory_state {
    int32_t stype;
    const void *next;
    int32_t health;
    uint64_t free, size;
};

EXPORTED int zesMemoryGetState(uintptr_t module, struct memory_state *state);
EXPORTED int zesMemoryGetState(uintptr_t module, struct memory_state *state)
{
    struct thing thing;
    int error = begin(MEMORY, module, "memories", &thing);
    if (error != 0)
        return error;
    state->free = state_number("%d.memories.%d.free", thing.device, thing.index);
    state->size = state_number("%d.memories.%d.size", thing.device, thing.index);
    state_end();
    return SUCCESS;
}

EXPORTED int zesDeviceEnumPowerDomains(uintptr_t device, uint32_t *count, uintptr_t *domains);
EXPORTED int zesDeviceEnumPowerDomains(uintptr_t device, uint32_t *count, uintptr_t *domains)
{
    return list(device, POWER, "powers", count, domains);
}

struct power_extension {
    int32_t stype;
    void *next;
    int32_t domain;
    void *default_limit;
};

struct power_properties {
    int32_t stype;
    struct power_extension *next;
    uint8_t on_subdevice;
    uint32_t subdevice;
};

EXPORTED int zesPowerGetProperties(uintptr_t domain, struct power_properties *properties);
EXPORTED int zesPowerGetProperties(uintptr_t domain, struct power_properties *properties)
{
    struct thing thing;
    int error = begin(POWER, domain, "powers", &thing);
    if (error != 0)
        return error;
    properties->on_subdevice =
        state_text("%d.powers.%d.subdevice", thing.device, thing.index) != NULL;
    if (properties->next != NULL && properties->next->stype == 0x28)
        properties->next->domain =
            (int32_t)state_number("%d.powers.%d.domain", thing.device, thing.index);
    state_end();
    return SUCCESS;
}

struct energy_counter {
    uint64_t energy, timestamp;
};

EXPORTED int zesPowerGetEnergyCounter(uintptr_t domain, struct energy_counter *counter);
EXPORTED int zesPowerGetEnergyCounter(uintptr_t domain, struct energy_counter *counter)
{
    struct thing thing;
    int error = begin(POWER, domain, "powers", &thing);
    if (error != 0)
        return error;
    counter->energy = state_number("%d.powers.%d.energy", thing.device, thing.index);
    counter->timestamp = state_number("%d.powers.%d.timestamp", thing.device, thing.index);
    state_end();
    return SUCCESS;
}

struct power_limit {
    int32_t stype;
    void *next;
    int32_t level, source, unit;
    uint8_t state_locked, enabled, interval_locked;
    int32_t interval;
    uint8_t limit_locked;
    int32_t limit;
};

/* A peak limit in milliamperes, a burst limit and the sustained one, in this order. */
EXPORTED int zesPowerGetLimitsExt(uintptr_t domain, uint32_t *count, struct power_limit *limits);
EXPORTED int zesPowerGetLimitsExt(uintptr_t domain, uint32_t *count, struct power_limit *limits)
{
    struct thing thing;
    int error = begin(POWER, domain, "powers", &thing);
    if (error != 0)
        return error;
    int32_t sustained = (int32_t)state_number("%d.powers.%d.limit", thing.device, thing.index);
    bool disabled = state_number("%d.powers.%d.limit.disabled", thing.device, thing.index) != 0;
    state_end();
    if (limits != NULL && *count >= 3) {
        limits[0].level = 3, limits[0].unit = 1, limits[0].enabled = 1, limits[0].limit = 20000;
        limits[1].level = 2, limits[1].unit = 2, limits[1].enabled = 1;
        limits[1].limit = 2 * sustained;
        limits[2].level = 1, limits[2].unit = 2, limits[2].enabled = !disabled;
        limits[2].limit = sustained;
    }
    *count = 3;
    return SUCCESS;
}

EXPORTED int zesDeviceEnumFrequencyDomains(uintptr_t device, uint32_t *count, uintptr_t *domains);
EXPORTED int zesDeviceEnumFrequencyDomains(uintptr_t device, uint32_t *count, uintptr_t *domains)
{
    return list(device, FREQUENCY, "clocks", count, domains);
}

EXPORTED int zesFrequencyGetProperties(uintptr_t domain, struct part_properties *properties);
EXPORTED int zesFrequencyGetProperties(uintptr_t domain, struct part_properties *properties)
{
    struct thing thing;
    int error = part_properties(FREQUENCY, domain, "clocks", properties, &thing);
    if (error == 0)
        state_end();
    return error;
}

struct frequency_state {
    int32_t stype;
    const void *next;
    double voltage, request, tdp, efficient, actual;
    uint32_t throttle_reasons;
};

EXPORTED int zesFrequencyGetState(uintptr_t domain, struct frequency_state *state);
EXPORTED int zesFrequencyGetState(uintptr_t domain, struct frequency_state *state)
{
    struct thing thing;
    int error = begin(FREQUENCY, domain, "clocks", &thing);
    if (error != 0)
        return error;
    state->actual = state_real("%d.clocks.%d.actual", thing.device, thing.index);
    state_end();
    return SUCCESS;
}

struct throttle_time {
    uint64_t throttled, timestamp;
};

EXPORTED int zesFrequencyGetThrottleTime(uintptr_t domain, struct throttle_time *time);
EXPORTED int zesFrequencyGetThrottleTime(uintptr_t domain, struct throttle_time *time)
{
    struct thing thing;
    int error = begin(FREQUENCY, domain, "clocks", &thing);
    if (error != 0)
        return error;
    bool there = state_text("%d.clocks.%d.throttled", thing.device, thing.index) != NULL;
    time->throttled = state_number("%d.clocks.%d.throttled", thing.device, thing.index);
    state_end();
    return there ? SUCCESS : 0x78000003; /* UNSUPPORTED_FEATURE */
}

EXPORTED int zesDeviceEnumTemperatureSensors(uintptr_t device, uint32_t *count,
                                             uintptr_t *sensors);
EXPORTED int zesDeviceEnumTemperatureSensors(uintptr_t device, uint32_t *count, uintptr_t *sensors)
{
    return list(device, TEMPERATURE, "temperatures", count, sensors);
}

EXPORTED int zesTemperatureGetProperties(uintptr_t sensor, struct part_properties *properties);
EXPORTED int zesTemperatureGetProperties(uintptr_t sensor, struct part_properties *properties)
{
    struct thing thing;
    int error = part_properties(TEMPERATURE, sensor, "temperatures", properties, &thing);
    if (error == 0)
        state_end();
    return error;
}

EXPORTED int zesTemperatureGetState(uintptr_t sensor, double *celsius);
EXPORTED int zesTemperatureGetState(uintptr_t sensor, double *celsius)
{
    struct thing thing;
    int error = begin(TEMPERATURE, sensor, "temperatures", &thing);
    if (error != 0)
        return error;
    *celsius = state_real("%d.temperatures.%d.celsius", thing.device, thing.index);
    state_end();
    return SUCCESS;
}
