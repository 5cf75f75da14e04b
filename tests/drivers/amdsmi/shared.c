/* The parser of state files and the counts of calls are those of the fake NVML driver. */
#include "../nvml/counts.c"
#include "../nvml/state.c"
