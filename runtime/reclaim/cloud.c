/* cloud.c - DMI texts and the clouds that write them. */
#include "runtime/reclaim/cloud.h"

#include "comm/fabric/sysfile.h"

#include <string.h>

enum {
    FIELD_BYTES = 128
};

static bool is_field(const char *root, const char *name, const char *expected)
{
    char value[FIELD_BYTES];
    return tern_sys_line(root, value, sizeof value, "sys/class/dmi/id/%s", name) &&
           strcmp(value, expected) == 0;
}

static bool is_in_field(const char *root, const char *name, const char *part)
{
    char value[FIELD_BYTES];
    return tern_sys_line(root, value, sizeof value, "sys/class/dmi/id/%s", name) &&
           strstr(value, part) != NULL;
}

enum tern_cloud tern_cloud_detect(const char *root)
{
    /* Nitro says it in the vendor, Xen in the BIOS */
    if (is_field(root, "sys_vendor", "Amazon EC2") || is_in_field(root, "bios_version", "amazon")) {
        return TERN_CLOUD_AWS;
    }
    /* Hyper-V has the same vendor in anybody's cellar; Azure's chassis have one asset tag */
    if (is_field(root, "sys_vendor", "Microsoft Corporation") &&
        is_field(root, "chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77")) {
        return TERN_CLOUD_AZURE;
    }
    if (is_field(root, "sys_vendor", "Google") &&
        is_field(root, "product_name", "Google Compute Engine")) {
        return TERN_CLOUD_GCP;
    }
    return TERN_CLOUD_NONE;
}

const char *tern_cloud_name(enum tern_cloud cloud)
{
    static const char *const names[TERN_CLOUD_COUNT] = {"none", "aws", "azure", "gcp"};
    return names[cloud];
}
