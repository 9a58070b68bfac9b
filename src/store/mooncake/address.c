/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/address.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

enum { PORT_DIGITS_MAX = 5, PORT_MAX = 65535 };

static bool port_parse(const char *text, uint16_t *out_port)
{
    uint32_t port = 0;
    size_t count = 0;
    for (; text[count] >= '0' && text[count] <= '9' && count <= PORT_DIGITS_MAX; count++)
        port = port * 10 + (uint32_t)(text[count] - '0');
    if (count == 0 || count > PORT_DIGITS_MAX || text[count] || port == 0 || port > PORT_MAX)
        return false;
    *out_port = (uint16_t)port;
    return true;
}

enum tarn_status address_parse(const char *text, struct address *out_address)
{
    struct address address;
    const bool is_bracketed = text[0] == '[';
    const char *host = text + is_bracketed;
    const char *end = is_bracketed ? strchr(host, ']') : strrchr(host, ':');
    if (!end || end == host || end - host > ADDRESS_HOST_BYTES_MAX)
        return TARN_INVALID;
    const char *colon = end + is_bracketed;
    const size_t host_bytes = (size_t)(end - host);
    if (*colon != ':' || !port_parse(colon + 1, &address.port))
        return TARN_INVALID;
    memcpy(address.host, host, host_bytes);
    address.host[host_bytes] = '\0';
    /* A colon belongs into brackets, a slash nowhere. */
    if (strpbrk(address.host, is_bracketed ? "[]/ " : "[]/: "))
        return TARN_INVALID;
    *out_address = address;
    return TARN_OK;
}

/* A datagram socket that is connected sends nothing, and knows its own address. */
static bool route_find(const struct addrinfo *to, char out_host[ADDRESS_HOST_BYTES_MAX + 1])
{
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof(own);
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    const bool is_known = connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                          getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
                          getnameinfo((struct sockaddr *)&own, own_bytes, out_host,
                                      ADDRESS_HOST_BYTES_MAX + 1, NULL, 0, NI_NUMERICHOST) == 0;
    (void)close(fd);
    return is_known;
}

enum tarn_status address_of_route(const struct address *address,
                                  char out_host[ADDRESS_HOST_BYTES_MAX + 1])
{
    const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
    struct addrinfo *found = NULL;
    char port[PORT_DIGITS_MAX + 1];
    bool is_known = false;
    (void)snprintf(port, sizeof(port), "%u", address->port);
    const int error = getaddrinfo(address->host, port, &hints, &found);
    if (error != 0) {
        log_error("the host %s is not known: %s", address->host, gai_strerror(error));
        return TARN_IO;
    }
    for (const struct addrinfo *to = found; to && !is_known; to = to->ai_next)
        is_known = route_find(to, out_host);
    freeaddrinfo(found);
    if (!is_known) {
        log_error("there is no route to the host %s", address->host);
        return TARN_IO;
    }
    return TARN_OK;
}
