/* What the library allocates for its callers: samples and sets of events. */
#ifndef FAKE_NVML_OBJECTS_H
#define FAKE_NVML_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>

/* Not thread-safe: the caller holds the lock. `kind` is a literal, such as "gpm sample". */
void *object_new(const char *kind, size_t size);

/* The object itself, if that is a live one of this kind; else NULL. */
void *object_of(const char *kind, void *pointer);
bool object_free(const char *kind, void *pointer);

/* At the last shutdown: whatever still lives is gone, and counted as "FATE KIND". */
void objects_end(const char *state_path, const char *fate);

#endif
