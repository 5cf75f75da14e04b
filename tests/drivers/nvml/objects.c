#include "objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counts.h"

struct object {
    const char *kind;
    void *memory;
    struct object *next;
};

static struct object *live;

void *object_new(const char *kind, size_t size)
{
    struct object *object = malloc(sizeof(*object));
    void *memory = calloc(1, size);
    if (object == NULL || memory == NULL)
        abort();
    *object = (struct object){kind, memory, live};
    live = object;
    return memory;
}

void *object_of(const char *kind, void *pointer)
{
    for (struct object *object = live; object != NULL; object = object->next)
        if (object->memory == pointer && strcmp(object->kind, kind) == 0)
            return pointer;
    return NULL;
}

static void drop(struct object **place)
{
    struct object *object = *place;
    *place = object->next;
    free(object->memory);
    free(object);
}

bool object_free(const char *kind, void *pointer)
{
    if (object_of(kind, pointer) == NULL)
        return false;
    struct object **place = &live;
    while ((*place)->memory != pointer)
        place = &(*place)->next;
    drop(place);
    return true;
}

void objects_end(const char *state_path, const char *fate)
{
    while (live != NULL) {
        char what[64];
        snprintf(what, sizeof(what), "%s %s", fate, live->kind);
        count_call(state_path, what, "");
        drop(&live);
    }
}
