/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void info_release(struct addrinfo **info)
{
    if (*info)
        freeaddrinfo(*info);
}

/* 0, or what gai_strerror() explains. */
static int info_find(const char *host, uint16_t port, struct addrinfo **out_info)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    char text[8];
    (void)snprintf(text, sizeof(text), "%u", port);
    return getaddrinfo(host, text, &hints, out_info);
}

static void name_print(const struct sockaddr_storage *address, socklen_t address_bytes,
                       char out_host[ADDRESS_HOST_BYTES_MAX + 1])
{
    if (getnameinfo((const struct sockaddr *)(const void *)address, address_bytes, out_host,
                    ADDRESS_HOST_BYTES_MAX + 1, NULL, 0, NI_NUMERICHOST) != 0)
        out_host[0] = '\0';
}

static void route_read(int fd, struct probe_route *out_route)
{
    struct sockaddr_storage address = { 0 };
    socklen_t address_bytes = sizeof(address);
    (void)getsockname(fd, (struct sockaddr *)(void *)&address, &address_bytes);
    name_print(&address, address_bytes, out_route->own);
    address_bytes = sizeof(address);
    (void)getpeername(fd, (struct sockaddr *)(void *)&address, &address_bytes);
    name_print(&address, address_bytes, out_route->peer);
}

/* errno of one attempt; 0: connected. */
static int connect_within(int fd, const struct addrinfo *to, uint32_t timeout_ms)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (poll(&poll_fd, 1, (int)timeout_ms) <= 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) == 0 ? error : errno;
}

enum tarn_status probe_connect(const struct address *address, uint32_t timeout_ms,
                               struct probe_route *out_route, char *out_reason)
{
    CLEANUP(info_release)
    struct addrinfo *found = NULL;
    const int unknown = info_find(address->host, address->port, &found);
    if (unknown != 0) {
        (void)snprintf(out_reason, PROBE_REASON_BYTES, "%s", gai_strerror(unknown));
        return TARN_MISS;
    }
    int error = 0;
    for (const struct addrinfo *to = found; to; to = to->ai_next) {
        const int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        error = fd < 0 ? errno : connect_within(fd, to, timeout_ms);
        if (fd >= 0 && error == 0)
            route_read(fd, out_route);
        if (fd >= 0)
            (void)close(fd);
        if (error == 0)
            return TARN_OK;
    }
    (void)snprintf(out_reason, PROBE_REASON_BYTES, "%s", strerrordesc_np(error));
    return TARN_MISS;
}

bool probe_port_is_free(const char *host, uint16_t port)
{
    CLEANUP(info_release)
    struct addrinfo *found = NULL;
    const int one = 1;
    /* who tries to listen will say why it cannot */
    if (info_find(host ? host : "0.0.0.0", port, &found) != 0)
        return true;
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    const bool is_free = bind(fd, found->ai_addr, found->ai_addrlen) == 0 || errno != EADDRINUSE;
    (void)close(fd);
    return is_free;
}

uint16_t probe_port_free(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    struct sockaddr *any = (struct sockaddr *)(void *)&address;
    socklen_t address_bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_bound =
        fd >= 0 && bind(fd, any, sizeof(address)) == 0 && getsockname(fd, any, &address_bytes) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is_bound ? ntohs(address.sin_port) : 0;
}

void probe_own_host(char out_host[ADDRESS_HOST_BYTES_MAX + 1])
{
    /* An address for documentation (RFC 5737). A connected datagram socket sends nothing. */
    struct sockaddr_in far = { .sin_family = AF_INET, .sin_port = htons(9) };
    struct sockaddr_storage own = { 0 };
    socklen_t own_bytes = sizeof(own);
    (void)inet_pton(AF_INET, "192.0.2.1", &far.sin_addr);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    out_host[0] = '\0';
    if (fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)&far, sizeof(far)) == 0 &&
        getsockname(fd, (struct sockaddr *)(void *)&own, &own_bytes) == 0)
        name_print(&own, own_bytes, out_host);
    if (fd >= 0)
        (void)close(fd);
    if (out_host[0] == '\0')
        (void)snprintf(out_host, ADDRESS_HOST_BYTES_MAX + 1, "127.0.0.1");
}

bool host_is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}
