/* nvmlDeviceGetFieldValues: many readings in one call, each with an error of its own. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "state.h"
#include "values.h"

#define EVERY_LINK 0xFFFFFFFFu

enum value_type { DOUBLE, UINT, ULONG, ULONG_LONG, LONG_LONG, INT, USHORT };

typedef union {
    double real;
    unsigned int uint;
    unsigned long ulong;
    unsigned long long ulong_long;
    long long long_long;
    int sint;
    unsigned short ushort;
    unsigned char bytes[8];
} value_t;

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t value_type;
    uint32_t result;
    value_t value;
} field_t;

/* What the scope of an item means: nothing, the sum of all links (which alone has a value), or whose
 * power it is: that of the GPU, or of the module that it shares with a processor. */
enum scope { NO_SCOPE, SUM_OF_LINKS, GPU_OR_MODULE };

static const struct {
    uint32_t field;
    const char *key;
    enum value_type type;
    enum scope scope;
} FIELDS[] = {
    {74, "violation_power_ns", ULONG_LONG, NO_SCOPE},
    {75, "violation_thermal_ns", ULONG_LONG, NO_SCOPE},
    {82, "memory_temperature", UINT, NO_SCOPE},
    {138, "nvlink_transmit_kib", ULONG_LONG, SUM_OF_LINKS},
    {139, "nvlink_receive_kib", ULONG_LONG, SUM_OF_LINKS},
    {185, "power_mw", UINT, GPU_OR_MODULE},
    {190, "power_limit_mw", UINT, GPU_OR_MODULE},
    {191, "energy_mj", ULONG_LONG, GPU_OR_MODULE},
    {197, "pcie_transmit_bytes", ULONG_LONG, NO_SCOPE},
    {198, "pcie_receive_bytes", ULONG_LONG, NO_SCOPE},
    {230, "recovery_action", UINT, NO_SCOPE},
};

static enum value_type type_named(const char *name, enum value_type otherwise)
{
    static const char *const NAMES[] = {"double", "uint", "ulong", "ull", "sll", "sint", "ushort"};
    for (size_t i = 0; name != NULL && i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strcmp(NAMES[i], name) == 0)
            return (enum value_type)i;
    return otherwise;
}

static void store(field_t *item, enum value_type type, unsigned long long number, double real)
{
    item->value_type = type;
    switch (type) {
    case DOUBLE:
        item->value.real = real;
        break;
    case UINT:
        item->value.uint = (unsigned int)number;
        break;
    case ULONG:
        item->value.ulong = (unsigned long)number;
        break;
    case ULONG_LONG:
        item->value.ulong_long = number;
        break;
    case LONG_LONG:
        item->value.long_long = (long long)number;
        break;
    case INT:
        item->value.sint = (int)number;
        break;
    case USHORT:
        item->value.ushort = (unsigned short)number;
        break;
    }
}

static int answer(const struct section *device, field_t *item)
{
    char key[64], place[64];
    snprintf(key, sizeof(key), "field_error.%u", item->field);
    const char *error = section_text(device, key);
    if (error != NULL)
        return error_code(error);
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        if (FIELDS[i].field != item->field)
            continue;
        unsigned long long number;
        if (FIELDS[i].scope == SUM_OF_LINKS && item->scope != EVERY_LINK)
            return INVALID_ARGUMENT;
        if (FIELDS[i].scope == GPU_OR_MODULE && item->scope > 1)
            return NOT_SUPPORTED;
        bool of_module = FIELDS[i].scope == GPU_OR_MODULE && item->scope == 1;
        snprintf(place, sizeof(place), "%s%s", of_module ? "module_" : "", FIELDS[i].key);
        if (!section_number(device, place, &number))
            return NOT_SUPPORTED;
        snprintf(key, sizeof(key), "field_type.%u", item->field);
        double real = section_real(device, place, 0);
        store(item, type_named(section_text(device, key), FIELDS[i].type), number, real);
        snprintf(key, sizeof(key), "field_value_type.%u", item->field);
        item->value_type = (uint32_t)section_real(device, key, item->value_type);
        return 0;
    }
    return NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetFieldValues(void *handle, int count, field_t *items)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    for (int i = 0; i < count; i++) {
        field_t *item = &items[i];
        /* What a value does not fill is left as garbage, as real drivers leave it. */
        memset(item->value.bytes, 0xA5, sizeof(item->value.bytes));
        item->value_type = ULONG_LONG;
        item->timestamp = (int64_t)(monotonic_seconds() * 1e6);
        item->latency = 3;
        item->result = (uint32_t)answer(device, item);
    }
    call_end();
    return 0;
}
