/* prices.h - what a machine costs an hour, from a catalogue: CSV whose first line names the columns InstanceType, Price,
 * SpotPrice and Region (others may be there, in any order), as SkyPilot's catalogues are. An empty price: not offered. */
#ifndef TERN_RUNTIME_OBSERVE_PRICES_H
#define TERN_RUNTIME_OBSERVE_PRICES_H

#include "runtime/base/status.h"

#include <stdbool.h>

/* The lowest one of that instance type over the zones of the region (NULL: all regions). TERN_ERR_CONFIG names the file and what
 * it lacks: a column, the instance (with the nearest there is), the region, a price of that kind. */
TERN_MUST_CHECK tern_status tern_price_find(const char *path,
                                            const char *instance,
                                            const char *region,
                                            bool is_spot,
                                            double *price_out);

#endif
