/* fetch.h - data that lies in object stores, as files of this machine. */
#ifndef TERN_RUNTIME_TRAIN_FETCH_H
#define TERN_RUNTIME_TRAIN_FETCH_H

#include "runtime/train/config.h"

/* Entries of data.train and data.val that are URLs become paths in the cache (io/cache.h): of the
 * object, or of all objects below the URL. */
TERN_MUST_CHECK tern_status tern_train_fetch_data(struct tern_config_data *data);

#endif
