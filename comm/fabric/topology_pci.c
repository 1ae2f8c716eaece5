/* topology_pci.c - GPUs, NVSwitches and bridges from bus/pci/devices and /proc/driver/nvidia. */
#include "comm/fabric/topology_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VENDOR_NVIDIA = 0x10de,
    CLASS_DISPLAY = 0x03,      /* first byte of the class */
    CLASS_BRIDGE_PCI = 0x0604, /* first two */
    CLASS_BRIDGE_OTHER = 0x0680,
    LANES_MAX = 32,
    CONFIG_BYTES = 4096,
    CONFIG_EXTENDED = 256, /* where the extended capabilities begin */
    CAPABILITIES_MAX = 64,
    ACS_ID = 0x0d,
    ACS_CONTROL = 6,
    /* ACS control bits: P2P request redirect and P2P completion redirect (PCI Express base specification, 7.7.11) */
    ACS_REDIRECT = 0x4 | 0x8
};

/* "32.0 GT/s PCIe"; 0 for "Unknown" and junk. */
static double read_speed(const char *root, const char *device, const char *file)
{
    char line[64];
    if (!tern_sys_line(root, line, sizeof line, "sys/bus/pci/devices/%s/%s", device, file)) {
        return 0;
    }
    double speed = strtod(line, NULL);
    return speed > 0 && speed < 1000 ? speed : 0;
}

/* A device that hides its link, as in many VMs, says 0 or 255. */
static int read_width(const char *root, const char *device, const char *file)
{
    int64_t width = tern_sys_i64(root, 0, "sys/bus/pci/devices/%s/%s", device, file);
    return width > 0 && width <= LANES_MAX ? (int)width : 0;
}

/* From "../../../devices/pci0000:15/0000:15:01.0/0000:18:00.0" what begins with the root complex. */
static void read_path(const char *root, const char *device, char out[TERN_TOPO_PATH_BYTES])
{
    char link[1024];
    out[0] = '\0';
    if (tern_sys_link(root, link, sizeof link, "sys/bus/pci/devices/%s", device)) {
        const char *complex = strstr(link, "/pci");
        size_t length = complex != NULL ? strlen(complex + 1) : TERN_TOPO_PATH_BYTES;
        if (length < TERN_TOPO_PATH_BYTES) {
            memcpy(out, complex + 1, length + 1);
        }
    }
}

/* What the slot allows: the bridge above is the last but one part of the path. */
static void read_slot(const char *root, struct tern_topo_pci *pci)
{
    char above[TERN_TOPO_PATH_BYTES];
    snprintf(above, sizeof above, "%s", pci->path);
    char *end = strrchr(above, '/');
    if (end == NULL) {
        return;
    }
    *end = '\0';
    const char *bridge = strrchr(above, '/');
    if (bridge != NULL) {
        pci->slot_speed_max = read_speed(root, bridge + 1, "max_link_speed");
        pci->slot_width_max = read_width(root, bridge + 1, "max_link_width");
    }
}

void tern_topo_read_pci_device(const char *root, const char *address, struct tern_topo_pci *out)
{
    char text[256];
    static const char base[] = "sys/bus/pci/devices";
    memset(out, 0, sizeof *out);
    snprintf(out->address, sizeof out->address, "%s", address);
    read_path(root, address, out->path);
    out->vendor = (uint32_t)tern_sys_i64(root, 0, "%s/%s/vendor", base, address);
    out->device = (uint32_t)tern_sys_i64(root, 0, "%s/%s/device", base, address);
    out->class_code = (uint32_t)tern_sys_i64(root, 0, "%s/%s/class", base, address);
    int64_t node = tern_sys_i64(root, -1, "%s/%s/numa_node", base, address);
    out->numa_node = node >= 0 && node < 4096 ? (int)node : -1;
    out->width = read_width(root, address, "current_link_width");
    out->width_max = read_width(root, address, "max_link_width");
    out->speed = read_speed(root, address, "current_link_speed");
    out->speed_max = read_speed(root, address, "max_link_speed");
    read_slot(root, out);
    if (tern_sys_link(root, text, sizeof text, "%s/%s/driver", base, address)) {
        const char *name = strrchr(text, '/');
        snprintf(out->driver, sizeof out->driver, "%.31s", name != NULL ? name + 1 : text);
    }
    if (tern_sys_line(root, text, sizeof text, "%s/%s/iommu_group/type", base, address)) {
        out->is_translated = strncmp(text, "DMA", 3) == 0 ? TERN_ANSWER_YES : TERN_ANSWER_NO;
    }
}

/* ---- access control services ---- */

static uint32_t little_endian(const uint8_t *bytes, int count)
{
    uint32_t value = 0;
    for (int i = count - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* Walks the list of extended capabilities: a word of id (16 bits), version (4) and the next offset (12). Without root's
 * rights the kernel shows 64 bytes only, and the answer is not known. */
static enum tern_answer read_redirecting(const char *root, const char *address)
{
    uint8_t config[CONFIG_BYTES];
    size_t bytes =
        tern_sys_bytes(root, config, sizeof config, "sys/bus/pci/devices/%s/config", address);
    if (bytes < CONFIG_EXTENDED + 4) {
        return TERN_ANSWER_UNKNOWN;
    }
    size_t at = CONFIG_EXTENDED;
    for (int i = 0; i < CAPABILITIES_MAX && at >= CONFIG_EXTENDED && at + 8 <= bytes; i++) {
        uint32_t header = little_endian(config + at, 4);
        if ((header & 0xffff) == ACS_ID) {
            uint32_t control = little_endian(config + at + ACS_CONTROL, 2);
            return (control & ACS_REDIRECT) != 0 ? TERN_ANSWER_YES : TERN_ANSWER_NO;
        }
        at = header >> 20;
    }
    return TERN_ANSWER_NO;
}

static void add_bridge(struct tern_topo_reader *reader, const char *address)
{
    struct tern_topology *topology = reader->topology;
    if (topology->bridge_count == TERN_TOPO_BRIDGES_MAX) {
        return;
    }
    struct tern_topo_bridge *bridge = &topology->bridges[topology->bridge_count++];
    snprintf(bridge->address, sizeof bridge->address, "%.31s", address);
    read_path(reader->root, address, bridge->path);
    bridge->is_redirecting = read_redirecting(reader->root, address);
}

/* ---- GPUs ---- */

/* MIG instances of the GPU with this minor number: folders gi0, gi1, ... */
static int count_mig(struct tern_topo_reader *reader, int64_t minor)
{
    int count = 0;
    if (minor >= 0 &&
        tern_sys_list_names(reader->root, &reader->names_below,
                            "proc/driver/nvidia/capabilities/gpu%d/mig", (int)minor)) {
        for (int i = 0; i < reader->names_below.count; i++) {
            count += strncmp(reader->names_below.names[i], "gi", 2) == 0;
        }
    }
    return count;
}

static void add_gpu(struct tern_topo_reader *reader, const char *address)
{
    struct tern_topology *topology = reader->topology;
    char text[2048];
    char value[64];
    if (topology->gpu_count == TERN_TOPO_GPUS_MAX) {
        return;
    }
    struct tern_topo_gpu *gpu = &topology->gpus[topology->gpu_count++];
    tern_topo_read_pci_device(reader->root, address, &gpu->pci);
    if (tern_sys_text(reader->root, text, sizeof text, "proc/driver/nvidia/gpus/%s/information",
                      address)) {
        gpu->is_driven = TERN_ANSWER_YES;
        (void)tern_sys_value(text, "Model", gpu->model, sizeof gpu->model);
        bool has_minor = tern_sys_value(text, "Device Minor", value, sizeof value);
        gpu->mig_instances = count_mig(reader, has_minor ? strtol(value, NULL, 10) : -1);
    } else if (tern_sys_exists(reader->root, "proc/driver/nvidia/gpus")) {
        gpu->is_driven = TERN_ANSWER_NO;
    }
    if (gpu->model[0] == '\0') {
        snprintf(gpu->model, sizeof gpu->model, "NVIDIA device %04x", gpu->pci.device & 0xffff);
    }
}

void tern_topo_read_pci(struct tern_topo_reader *reader)
{
    if (!tern_sys_list_names(reader->root, &reader->names, "sys/bus/pci/devices")) {
        return;
    }
    for (int i = 0; i < reader->names.count; i++) {
        const char *address = reader->names.names[i];
        int64_t class_code = tern_sys_i64(reader->root, 0, "sys/bus/pci/devices/%s/class", address);
        int64_t vendor = tern_sys_i64(reader->root, 0, "sys/bus/pci/devices/%s/vendor", address);
        if (class_code >> 8 == CLASS_BRIDGE_PCI) {
            add_bridge(reader, address);
        } else if (vendor == VENDOR_NVIDIA && class_code >> 16 == CLASS_DISPLAY) {
            add_gpu(reader, address);
        } else if (vendor == VENDOR_NVIDIA && class_code >> 8 == CLASS_BRIDGE_OTHER) {
            reader->topology->nvswitch_count++;
        }
    }
}
