/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

static void info_release(struct addrinfo **info)
{
    if (*info)
        freeaddrinfo(*info);
}

enum tarn_status listen_bind(const char *host, uint16_t port, int *out_fd)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    CLEANUP(info_release)
    struct addrinfo *info = NULL;
    char service[8];
    const int one = 1;
    (void)snprintf(service, sizeof(service), "%u", port);
    const int error = getaddrinfo(host, service, &hints, &info);
    if (error != 0) {
        log_error("--host %s: %s", host, gai_strerror(error));
        return TARN_INVALID;
    }
    const int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        log_error("cannot open a socket: %s", strerrordesc_np(errno));
        return TARN_IO;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, info->ai_addr, info->ai_addrlen) != 0) {
        log_error("cannot have port %u on %s: %s%s", port, host, strerrordesc_np(errno),
                  errno == EADDRINUSE ? "; another server has it, choose one with --port" : "");
        (void)close(fd);
        return TARN_IO;
    }
    *out_fd = fd;
    return TARN_OK;
}

enum tarn_status listen_begin(int fd, char *out_address)
{
    struct sockaddr_storage address = { 0 };
    socklen_t address_bytes = sizeof(address);
    char host[64];
    char port[8];
    if (getsockname(fd, (struct sockaddr *)(void *)&address, &address_bytes) != 0) {
        log_error("cannot tell the address: %s", strerrordesc_np(errno));
        return TARN_IO;
    }
    const int error =
        getnameinfo((struct sockaddr *)(void *)&address, address_bytes, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    if (error != 0) {
        log_error("cannot tell the address: %s", gai_strerror(error));
        return TARN_IO;
    }
    if (listen(fd, SOMAXCONN) != 0) {
        log_error("cannot have port %s on %s: %s%s", port, host, strerrordesc_np(errno),
                  errno == EADDRINUSE ? "; another server took it since this one started, choose "
                                        "one with --port"
                                      : "");
        return TARN_IO;
    }
    const bool is_v6 = address.ss_family == AF_INET6;
    (void)snprintf(out_address, LISTEN_ADDRESS_BYTES, "%s%s%s:%s", is_v6 ? "[" : "", host,
                   is_v6 ? "]" : "", port);
    return TARN_OK;
}
