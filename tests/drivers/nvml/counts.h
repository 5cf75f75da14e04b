/* Counts of calls in a file beside the state, "STATE.calls.PID", that a test may read at any time:
 * slots of 120 bytes of text ("function", a space, and the UUID where there is one) and 8 bytes of
 * count, in no order, empty slots between them. */
#ifndef FAKE_NVML_COUNTS_H
#define FAKE_NVML_COUNTS_H

/* Not thread-safe: the caller holds the lock. Counts nothing where the file cannot be made. */
void count_call(const char *state_path, const char *function, const char *id);

#endif
