/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/device.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/mooncake/options.h"

enum { LINE_BYTES = 64, STATE_ACTIVE = 4 };

_Static_assert((int)DEVICE_NAMES_BYTES == (int)MOONCAKE_TEXT_BYTES_MAX + 1,
               "the names are a client's device_name");

/* What a walk over the ports has found. */
struct scan {
    double fastest; /* Gb/s, of the devices in the choice */
    size_t port_count;
    size_t active_count;   /* of any link layer */
    size_t ethernet_count; /* of the active ones */
    struct device_choice *choice;
    bool is_full;
};

static bool line_read(const char *folder, const char *name, char out_line[LINE_BYTES])
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool has_line = fgets(out_line, LINE_BYTES, file) != NULL;
    (void)fclose(file);
    if (has_line)
        out_line[strcspn(out_line, "\n")] = '\0';
    return has_line;
}

static void name_add(struct scan *scan, const char *device)
{
    char *names = scan->choice->names;
    const size_t length = strlen(names);
    const size_t device_length = strlen(device);
    if (length >= device_length && strcmp(names + length - device_length, device) == 0 &&
        (length == device_length || names[length - device_length - 1] == ','))
        return; /* another port of the same device */
    const int added =
        snprintf(names + length, DEVICE_NAMES_BYTES - length, "%s%s", length ? "," : "", device);
    if (added >= (int)(DEVICE_NAMES_BYTES - length)) {
        names[length] = '\0';
        scan->is_full = true;
    }
}

static void port_look(struct scan *scan, const char *device, const char *folder)
{
    char line[LINE_BYTES];
    scan->port_count++;
    if (!line_read(folder, "state", line) || strtol(line, NULL, 10) != STATE_ACTIVE)
        return;
    scan->active_count++;
    if (!line_read(folder, "link_layer", line) || strcmp(line, "InfiniBand") != 0) {
        scan->ethernet_count++;
        return;
    }
    if (!line_read(folder, "rate", line))
        return;
    const double rate = strtod(line, NULL);
    if (rate < scan->fastest)
        return;
    if (rate > scan->fastest)
        scan->choice->names[0] = '\0';
    scan->fastest = rate;
    name_add(scan, device);
}

static int is_named(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Call `look` for each entry of a folder, mlx5_2 before mlx5_10. */
static void folder_walk(struct scan *scan, const char *device, const char *folder,
                        void (*look)(struct scan *scan, const char *device, const char *folder))
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_named, versionsort);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name) < (int)sizeof(path))
            look(scan, device ? device : entries[i]->d_name, path);
        (free)(entries[i]); /* scandir()'s own */
    }
    if (count >= 0)
        (free)(entries);
}

static void device_look(struct scan *scan, const char *device, const char *folder)
{
    char ports[PATH_MAX];
    if (snprintf(ports, sizeof(ports), "%s/ports", folder) < (int)sizeof(ports))
        folder_walk(scan, device, ports, port_look);
}

static void choice_explain(const struct scan *scan, struct device_choice *choice)
{
    choice->is_warning = choice->names[0] == '\0';
    if (!choice->is_warning)
        (void)snprintf(choice->note, sizeof(choice->note),
                       "every active InfiniBand port at %g Gb/s, the fastest rate", scan->fastest);
    else if (scan->ethernet_count > 0)
        (void)snprintf(choice->note, sizeof(choice->note),
                       "rdma, but no port is InfiniBand: %zu active ones are Ethernet. Name their "
                       "devices with --device-name if they are to be used (RoCE)",
                       scan->ethernet_count);
    else
        (void)snprintf(choice->note, sizeof(choice->note),
                       "rdma, but of %zu InfiniBand ports none is active: the library chooses, and "
                       "may fail; see ibstat",
                       scan->port_count);
}

enum tarn_status device_choose(const char *sysfs, const char *protocol, const char *wanted,
                               struct device_choice *out_choice)
{
    struct device_choice choice = { .is_warning = false };
    struct scan scan = { .choice = &choice };
    char folder[PATH_MAX];
    if (strcmp(wanted, "auto") != 0) {
        scan.is_full =
            snprintf(choice.names, sizeof(choice.names), "%s", wanted) >= (int)sizeof(choice.names);
    } else if (strcmp(protocol, "rdma") == 0 &&
               snprintf(folder, sizeof(folder), "%s/class/infiniband", sysfs) <
                   (int)sizeof(folder)) {
        folder_walk(&scan, NULL, folder, device_look);
        choice_explain(&scan, &choice);
    }
    if (scan.is_full) {
        log_error("the names of the network devices are longer than %d bytes; name fewer with "
                  "--device-name",
                  DEVICE_NAMES_BYTES - 1);
        return TARN_NO_SPACE;
    }
    *out_choice = choice;
    return TARN_OK;
}

enum tarn_status device_take(const char *protocol, const char *wanted,
                             char out_names[DEVICE_NAMES_BYTES])
{
    struct device_choice choice;
    TRY(device_choose("/sys", protocol, wanted, &choice));
    if (choice.note[0] && choice.is_warning)
        log_warn("network device: %s", choice.note);
    else if (choice.note[0])
        log_info("network device: %s: %s", choice.names, choice.note);
    (void)snprintf(out_names, DEVICE_NAMES_BYTES, "%s", choice.names);
    return TARN_OK;
}
