/* What engine.c and load.c share: the clock, sockets, and just enough of HTTP and JSON. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 1024
#define MS 1000000ULL
#define SECOND 1000000000ULL

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

/* Nanoseconds of the clock that all processes of this machine share. */
static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline int new_socket(void) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static inline void watch(int epoll, int operation, int fd, uint32_t events, void *data) {
    struct epoll_event event = {.events = events, .data.ptr = data};
    if (epoll_ctl(epoll, operation, fd, &event) < 0)
        die("epoll_ctl");
}

/* Wait until something happens, or until `until` (ns), whatever comes first. */
static inline int wait_until(int epoll, struct epoll_event *events, uint64_t until) {
    uint64_t now = now_ns(), left = until > now ? until - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / SECOND), .tv_nsec = (long)(left % SECOND)};
    int count = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
    if (count < 0 && errno != EINTR)
        die("epoll_pwait2");
    return count < 0 ? 0 : count;
}

/* The number after the first `"name":` in a text, or `otherwise`. */
static inline uint64_t number(const char *text, size_t size, const char *name, uint64_t otherwise) {
    char key[64];
    int length = snprintf(key, sizeof key, "\"%s\":", name);
    const char *end = text + size, *at = memmem(text, size, key, (size_t)length);
    if (!at)
        return otherwise;
    for (at += length; at < end && *at == ' '; at++)
        ;
    uint64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        value = 10 * value + (uint64_t)(*at - '0');
    return value;
}

/* Behind the empty line that ends the head in a text, or NULL while there is none. */
static inline char *head_end(char *text, size_t size) {
    char *found = memmem(text, size, "\r\n\r\n", 4);
    return found ? found + 4 : NULL;
}

/* The value of a field of a head that ends with a NUL, or NULL. */
static inline const char *field(const char *head, const char *name) {
    size_t size = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, size) && line[2 + size] == ':')
            return line + 3 + size + strspn(line + 3 + size, " ");
    return NULL;
}
