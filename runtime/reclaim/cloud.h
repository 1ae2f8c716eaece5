/* cloud.h - whose machine this is, by what its firmware says (DMI). */
#ifndef TERN_RUNTIME_RECLAIM_CLOUD_H
#define TERN_RUNTIME_RECLAIM_CLOUD_H

enum tern_cloud {
    TERN_CLOUD_NONE, /* or not one that we know */
    TERN_CLOUD_AWS,
    TERN_CLOUD_AZURE,
    TERN_CLOUD_GCP,
    TERN_CLOUD_COUNT
};

/* Reads ROOT/sys/class/dmi/id; "/" is this machine. What cannot be read says nothing. */
enum tern_cloud tern_cloud_detect(const char *root);
const char *tern_cloud_name(enum tern_cloud cloud); /* "aws" */

#endif
