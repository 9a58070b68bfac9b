/* SPDX-License-Identifier: Apache-2.0 */
/* What a distributed pool needs: the Mooncake library, a master, a way to it, devices, and pages
 * that go there and come back. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cluster/client-file.h"
#include "cluster/client-options.h"
#include "cluster/device.h"
#include "cluster/find-master.h"
#include "cluster/master.h"
#include "cluster/pool-plan.h"
#include "config/value.h"
#include "os/process.h"
#include "store/mooncake/provider.h"

enum { MASTER_WAIT_MS = 3000, BUFFER_BYTES = 64 << 20, PATH_BYTES = 64, POOL_BYTES = 96 };

struct distributed {
    struct doctor *doctor;
    struct pool_plan plan;
    struct mooncake_options client;
    struct found_master found;
    char local_host[ADDRESS_HOST_BYTES_MAX + 1];
};

/* A text that fits into a field of fixed size. */
#define FIELD_TAKE(field, text) (void)snprintf(field, sizeof(field), "%s", text)

static enum tarn_status client_fill(struct distributed *it)
{
    const struct options *options = it->doctor->options;
    struct mooncake_options *client = &it->client;
    TRY(client_from_options(options, client));
    TRY(client_text_take(options, OPTION_DEVICE_NAME, client->device_name,
                         sizeof(client->device_name)));
    return client_text_take(options, OPTION_LOCAL_HOSTNAME, client->local_hostname,
                            sizeof(client->local_hostname));
}

static enum tarn_status plan_find(struct distributed *it)
{
    char error[OPTION_ERROR_BYTES] = "";
    struct pool_plan_input input = {
        .options = it->doctor->options,
        .inherited = process_variable(environ, "MOONCAKE_CONFIG_PATH"),
    };
    doctor_log_catch(it->doctor);
    enum tarn_status status = TARN_OK;
    if (input.inherited) {
        status = mooncake_options_read_file(input.inherited, &it->client);
        input.inherited_master = it->client.master_server_address;
    }
    if (status == TARN_OK)
        status = pool_plan_make(&input, &it->plan, error);
    if (status == TARN_OK && it->plan.pool != PLAN_FILE)
        status = client_fill(it);
    doctor_log_release(it->doctor);
    if (status != TARN_OK)
        doctor_say(it->doctor, "pool", DOCTOR_FAILED, NULL, "%s",
                   error[0] ? error : it->doctor->last_error);
    return status;
}

/* The wheel's client is linked with these; a library of one's own may do without some. */
static void system_libraries_check(struct distributed *it)
{
    static const struct {
        const char *file;
        const char *package;
    } libraries[] = { { "libibverbs.so.1", "libibverbs1" },
                      { "libnuma.so.1", "libnuma1" },
                      { "libcurl.so.4", "libcurl4" } };
    for (size_t i = 0; i < LENGTH_OF(libraries); i++) {
        void *handle = dlopen(libraries[i].file, RTLD_LAZY | RTLD_LOCAL);
        if (handle)
            (void)dlclose(handle);
        doctor_say(it->doctor, "libraries", handle ? DOCTOR_OK : DOCTOR_WARNING,
                   handle ? NULL : "install the package that has it",
                   handle ? "%s is there%.0s" : "%s is not there (Debian: %s)", libraries[i].file,
                   libraries[i].package);
    }
}

static enum tarn_status provider_check(struct distributed *it)
{
    struct provider provider;
    doctor_log_catch(it->doctor);
    const enum tarn_status status = provider_open(it->client.library, it->client.wheel, &provider);
    doctor_log_release(it->doctor);
    if (status != TARN_OK)
        doctor_say(it->doctor, "Mooncake", DOCTOR_FAILED,
                   "pip install mooncake-transfer-engine-non-cuda, or name a library with "
                   "MOONCAKE_STORE_LIBRARY",
                   "%s", it->doctor->last_error);
    else
        doctor_say(it->doctor, "Mooncake", DOCTOR_OK, NULL, "%.300s%s", provider.path,
                   provider.is_bridge ? ", to the Python package" : "");
    return status;
}

static void port_check(struct distributed *it, enum option option)
{
    const uint64_t port = option_number(it->doctor->options, option);
    const char *listen = option_text(it->doctor->options, OPTION_MASTER_LISTEN);
    char place[OPTION_PLACE_BYTES];
    option_place(it->doctor->options, option, place);
    if (probe_port_is_free(listen, (uint16_t)port))
        doctor_say(it->doctor, "master", DOCTOR_OK, NULL, "port %" PRIu64 " is free for it", port);
    else
        doctor_say(it->doctor, "master", DOCTOR_FAILED, "stop what has it, or choose another",
                   "%.200s: port %" PRIu64 " is taken", place, port);
}

/* A master that the server would start. */
static void launch_check(struct distributed *it)
{
    char path[PATH_MAX];
    const char *program = option_text(it->doctor->options, OPTION_MOONCAKE_MASTER);
    doctor_log_catch(it->doctor);
    const enum tarn_status status = master_find(program, environ, path);
    doctor_log_release(it->doctor);
    if (status != TARN_OK)
        doctor_say(it->doctor, "master", DOCTOR_FAILED, NULL, "%s", it->doctor->last_error);
    else
        doctor_say(it->doctor, "master", DOCTOR_OK, NULL, "this server would start %.400s", path);
    port_check(it, OPTION_MASTER_PORT);
    port_check(it, OPTION_MASTER_METRICS_PORT);
}

/* A master that is there. */
static enum tarn_status join_check(struct distributed *it, const char *master)
{
    struct doctor *doctor = it->doctor;
    doctor_log_catch(doctor);
    const enum tarn_status status = find_master(master, MASTER_WAIT_MS, &it->found);
    doctor_log_release(doctor);
    if (status != TARN_OK) {
        doctor_say(doctor, "master", DOCTOR_FAILED, NULL, "%s", doctor->last_error);
        return status;
    }
    if (!it->found.is_address)
        doctor_say(doctor, "master", DOCTOR_WARNING, "write HOST:PORT",
                   "'%.200s' is no HOST:PORT, and was not tried", it->found.text);
    else
        doctor_say(doctor, "master", DOCTOR_OK, NULL, "%.300s accepts connections", it->found.text);
    return TARN_OK;
}

static void host_check(struct distributed *it)
{
    struct doctor *doctor = it->doctor;
    const char *wanted = it->client.local_hostname[0] ? it->client.local_hostname : NULL;
    doctor_log_catch(doctor);
    const enum tarn_status status = find_local_host(&it->found, wanted, it->local_host);
    doctor_log_release(doctor);
    if (status != TARN_OK)
        doctor_say(doctor, "local host", DOCTOR_FAILED, NULL, "%s", doctor->last_error);
    else if (it->found.is_address && host_is_loopback(it->found.address.host))
        doctor_say(doctor, "local host", DOCTOR_NOTE,
                   "name the master by an address that other hosts reach",
                   "the master %.200s is on this host's loopback: the pool ends at this host",
                   it->found.text);
    else
        doctor_say(doctor, "local host", DOCTOR_OK, NULL, "others find this host as %.200s",
                   it->local_host);
}

static void locked_memory_check(struct distributed *it)
{
    struct rlimit limit;
    char allowed[32];
    char needed[32];
    const uint64_t bytes = mooncake_lent_bytes(&it->client) + it->client.local_buffer_bytes;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= bytes)
        return;
    value_print_size(limit.rlim_cur, allowed, sizeof(allowed));
    value_print_size(bytes, needed, sizeof(needed));
    doctor_say(it->doctor, "memlock", DOCTOR_FAILED,
               "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity (systemd), --ulimit "
               "memlock=-1 (docker)",
               "RDMA registers %s, but only %s may be locked", needed, allowed);
}

static void devices_check(struct distributed *it)
{
    struct doctor *doctor = it->doctor;
    struct device_choice choice;
    doctor_log_catch(doctor);
    const enum tarn_status status =
        device_choose("/sys", it->client.protocol,
                      it->client.device_name[0] ? it->client.device_name : "auto", &choice);
    doctor_log_release(doctor);
    if (status != TARN_OK)
        doctor_say(doctor, "device", DOCTOR_FAILED, NULL, "%s", doctor->last_error);
    else
        doctor_say(doctor, "device", choice.is_warning ? DOCTOR_WARNING : DOCTOR_OK, NULL,
                   "%.64s%s%s%s%s", it->client.protocol, choice.names[0] ? " over " : "",
                   choice.names, choice.note[0] ? "; " : "", choice.note);
    if (strcmp(it->client.protocol, "rdma") != 0)
        return;
    locked_memory_check(it);
    if (access("/proc/driver/nvidia", F_OK) == 0 && access("/sys/module/nvidia_peermem", F_OK) != 0)
        doctor_say(doctor, "peer memory", DOCTOR_WARNING,
                   "modprobe nvidia_peermem; without it pages pass through host memory",
                   "there is an NVIDIA device, and its memory cannot be registered for RDMA");
}

/* Through a client that lends nothing and asks for little, so that nothing stays of it. */
static void pages_check(struct distributed *it, const struct tarn_connector_ops *ops)
{
    char path[PATH_BYTES] = "/tmp/tarn-doctor-XXXXXX";
    char pool[POOL_BYTES];
    struct mooncake_options client = it->client;
    const int fd = mkstemp(path);
    if (fd < 0) {
        doctor_say(it->doctor, "write and read", DOCTOR_FAILED, NULL, "/tmp cannot be written to");
        return;
    }
    (void)close(fd);
    FIELD_TAKE(client.master_server_address, it->found.text);
    FIELD_TAKE(client.local_hostname, it->local_host);
    client.global_segment_bytes = 0;
    client.local_buffer_bytes = BUFFER_BYTES;
    client.master_timeout_ms = MASTER_WAIT_MS;
    doctor_log_catch(it->doctor);
    const enum tarn_status status = client_file_write(&client, path);
    doctor_log_release(it->doctor);
    (void)snprintf(pool, sizeof(pool), "mooncake:%s", path);
    if (status == TARN_OK)
        doctor_probe(it->doctor, ops, pool, it->found.text);
    (void)unlink(path);
}

bool doctor_check_distributed(struct doctor *doctor, const struct tarn_connector_ops *ops)
{
    struct distributed it = { .doctor = doctor };
    if (plan_find(&it) != TARN_OK)
        return true;
    if (it.plan.pool == PLAN_AS_GIVEN && !it.plan.donates)
        return false;
    system_libraries_check(&it);
    const bool has_library = provider_check(&it) == TARN_OK;
    devices_check(&it);
    if (it.plan.pool == PLAN_LAUNCH) {
        launch_check(&it);
        doctor_say(doctor, "write and read", DOCTOR_NOTE, "try again while it runs",
                   "not tried: the pool is there once this server has started its master");
        return true;
    }
    const char *master = it.plan.pool == PLAN_FILE    ? it.client.master_server_address
                         : it.plan.pool == PLAN_JOIN  ? it.plan.master
                         : it.plan.donation_master[0] ? it.plan.donation_master
                                                      : it.plan.master;
    if (join_check(&it, master) != TARN_OK)
        return true;
    host_check(&it);
    if (has_library && it.plan.pool != PLAN_NO_POOL && it.plan.pool != PLAN_AS_GIVEN)
        pages_check(&it, ops);
    return it.plan.pool != PLAN_AS_GIVEN;
}
