/* A load generator: one thread, epoll, so cheap that what it measures is the other side.
 *
 *   load key=value ...
 *
 *   port=N         where on 127.0.0.1
 *   path=TEXT      of the POST requests
 *   body=JSON      their body; "@@@@@@@@" in it becomes the number of the connection, from 1, in 8 digits
 *   connections=N  opened evenly over `ramp` ms
 *   repeat=1       send the next request when one is answered, on the same connection; else one request each
 *   pace=US        with repeat: but not earlier than so many microseconds after the one before
 *   settle=MS      from the last connection to the begin of the measurement
 *   seconds=S      of measurement
 *   close=US       in the measurement, close one connection in so many microseconds
 *
 * Prints "begin" and "end" around the measurement, and last one JSON line: what was counted in the measurement
 * ("requests" answered, "chunks" of events and "reads" that held them, "errors") and percentiles in microseconds
 * ("latency" of whole answers, "first" byte of the answer's body since the connection was begun, "delay" of events
 * since the engine wrote them). "first" is of all connections, whenever they were opened. Prints
 * "closing N <ns>" for each connection that it closes.
 */

#include "wire.h"

typedef struct {
    uint32_t *at;
    size_t count, room;
} samples;

typedef struct {
    int fd, number, headless, begun; /* begun: a byte of a body has come. */
    uint64_t opened_at, sent_at, body_left;
    uint64_t due; /* When it sends its next request; 0: not before it is answered. */
    size_t in_size;
    char in[16384]; /* The head as far as it has come. */
    char last;      /* Byte of the events. */
    char *request;
    size_t size, sent;
} connection;

static const char *path = "/v1/chat/completions", *body = "{}";
static int port, connections = 1, repeat;
static double seconds = 1;
static uint64_t ramp_ms, settle_ms, pace_us, close_us;

static int epoll, measuring, alive;
static connection *all;
static uint64_t requests, chunks, reads, errors;
static samples latency, first, delay;

static void note(samples *s, uint64_t ns) {
    if (s->count == s->room)
        s->at = realloc(s->at, (s->room = s->room ? 2 * s->room : 4096) * sizeof *s->at);
    s->at[s->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const char *name, samples *s) {
    static const double at[] = {0.5, 0.9, 0.99, 1};
    static const char *const names[] = {"p50", "p90", "p99", "max"};
    if (!s->count)
        return;
    qsort(s->at, s->count, sizeof *s->at, ascending);
    printf(",\"%s\":{\"count\":%zu", name, s->count);
    for (int i = 0; i < 4; i++)
        printf(",\"%s\":%.1f", names[i], s->at[(size_t)(at[i] * (double)(s->count - 1))] / 1e3);
    printf("}");
}

static void hang_up(connection *c) {
    close(c->fd);
    c->fd = -1;
    alive--;
}

static void fail(connection *c, const char *why) {
    if (!errors++)
        fprintf(stderr, "load: connection %d: %s: %.200s\n", c->number, why, c->in_size ? c->in : "");
    hang_up(c);
}

static void send_request(connection *c) {
    ssize_t sent = send(c->fd, c->request + c->sent, c->size - c->sent, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        fail(c, strerror(errno));
        return;
    }
    if (sent > 0)
        c->sent += (size_t)sent;
    watch(epoll, EPOLL_CTL_MOD, c->fd, EPOLLIN | (c->sent < c->size ? (uint32_t)EPOLLOUT : 0), c);
}

static void begin_request(connection *c) {
    c->sent = 0;
    c->headless = 1;
    c->sent_at = now_ns();
    ssize_t sent = send(c->fd, c->request, c->size, MSG_NOSIGNAL);
    if (sent == (ssize_t)c->size)
        c->sent = c->size;
    else
        send_request(c);
}

static void open_connection(connection *c) {
    struct sockaddr_in address = loopback(port);
    char text[65536], *mark;
    snprintf(text, sizeof text, "%s", body);
    while ((mark = strstr(text, "@@@@@@@@"))) {
        char digits[16];
        snprintf(digits, sizeof digits, "%08d", c->number);
        memcpy(mark, digits, 8);
    }
    c->size = (size_t)asprintf(&c->request,
                               "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench\r\nAccept: */*\r\n"
                               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                               path, port, strlen(text), text);
    c->fd = new_socket();
    alive++;
    c->opened_at = c->sent_at = now_ns();
    c->headless = 1;
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        die("connect");
    watch(epoll, EPOLL_CTL_ADD, c->fd, EPOLLOUT, c);
}

/* Events end with an empty line of bare newlines, which chunk framing never has; it may come in two pieces. */
static void count_events(connection *c, const char *data, size_t size) {
    const char *end = data + size;
    uint64_t now = now_ns(), found = c->last == '\n' && data[0] == '\n';
    for (const char *at = data; (at = memmem(at, (size_t)(end - at), "\n\n", 2)); at += 2)
        found++;
    c->last = end[-1];
    if (!measuring)
        return;
    chunks += found;
    reads++;
    /* A time that a read cuts off is left out. */
    for (const char *at = data; (at = memmem(at, (size_t)(end - at), "\"t\":", 4)) && end - at > 32; at += 4)
        note(&delay, now - number(at, (size_t)(end - at), "t", now));
}

static void answered(connection *c) {
    if (measuring) {
        requests++;
        note(&latency, now_ns() - c->sent_at);
    }
    if (!repeat)
        hang_up(c);
    else if (pace_us)
        c->due = c->sent_at + 1000 * pace_us;
    else
        begin_request(c);
}

/* Send what is due; when there is something to send next. */
static uint64_t send_due(uint64_t now) {
    uint64_t next = UINT64_MAX;
    for (connection *c = all; c < all + connections; c++) {
        if (c->fd >= 0 && c->due && c->due <= now) {
            c->due = 0;
            begin_request(c);
        }
        next = c->due && c->due < next ? c->due : next;
    }
    return next;
}

static void take_body(connection *c, const char *data, size_t size) {
    if (!c->begun) {
        c->begun = 1;
        note(&first, now_ns() - c->opened_at);
    }
    if (c->body_left == UINT64_MAX) {
        count_events(c, data, size);
        if (repeat && size >= 5 && !memcmp(data + size - 5, "0\r\n\r\n", 5))
            answered(c);
    } else {
        c->body_left -= size < c->body_left ? size : c->body_left;
        if (!c->body_left)
            answered(c);
    }
}

static void take_head(connection *c, const char *data, size_t size) {
    if (size > sizeof c->in - 1 - c->in_size) {
        fail(c, "long head");
        return;
    }
    memcpy(c->in + c->in_size, data, size);
    c->in_size += size;
    c->in[c->in_size] = 0;
    char *behind = head_end(c->in, c->in_size);
    if (!behind)
        return;
    if (strncmp(c->in, "HTTP/1.1 200", 12)) {
        fail(c, "no 200");
        return;
    }
    size_t have = (size_t)(c->in + c->in_size - behind);
    const char *length = field(c->in, "Content-Length");
    c->headless = 0;
    c->body_left = length ? strtoull(length, NULL, 10) : UINT64_MAX;
    c->in_size = 0;
    if (have)
        take_body(c, data + size - have, have);
}

static void receive(connection *c) {
    static char data[65536];
    ssize_t got = recv(c->fd, data, sizeof data, 0);
    if (got > 0)
        (c->headless ? take_head : take_body)(c, data, (size_t)got);
    else if (got == 0 && !repeat && !c->headless && c->body_left == UINT64_MAX)
        hang_up(c); /* The end of a stream. */
    else if (got == 0 || errno != EAGAIN)
        fail(c, got == 0 ? "closed" : strerror(errno));
}

static void set(const char *argument) {
    const char *value = strchr(argument, '=');
    if (!value)
        exit(2);
    size_t size = (size_t)(value++ - argument);
#define IS(name) (size == sizeof name - 1 && !strncmp(argument, name, size))
    if (IS("port"))
        port = atoi(value);
    else if (IS("path"))
        path = value;
    else if (IS("body"))
        body = value;
    else if (IS("connections"))
        connections = atoi(value);
    else if (IS("repeat"))
        repeat = atoi(value);
    else if (IS("pace"))
        pace_us = strtoull(value, NULL, 10);
    else if (IS("ramp"))
        ramp_ms = strtoull(value, NULL, 10);
    else if (IS("settle"))
        settle_ms = strtoull(value, NULL, 10);
    else if (IS("seconds"))
        seconds = atof(value);
    else if (IS("close"))
        close_us = strtoull(value, NULL, 10);
    else
        exit(2);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        set(argv[i]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    all = calloc((size_t)connections, sizeof *all);

    uint64_t start = now_ns(), ramp = ramp_ms * MS;
    uint64_t begin = start + ramp + settle_ms * MS, end = begin + (uint64_t)(seconds * SECOND);
    int opened = 0, closed = 0;
    for (;;) {
        uint64_t now = now_ns(), until = measuring ? end : begin;
        if (now >= end || (opened == connections && !alive))
            break;
        if (!measuring && now >= begin) {
            measuring = 1;
            printf("begin\n");
            continue;
        }
        if (opened < connections) {
            uint64_t due = start + ramp * (uint64_t)opened / (uint64_t)connections;
            if (due <= now) {
                all[opened].number = opened + 1;
                open_connection(&all[opened++]);
                continue;
            }
            until = due < until ? due : until;
        }
        if (measuring && close_us && closed < opened) {
            uint64_t due = begin + 1000 * close_us * (uint64_t)(closed + 1);
            if (due <= now) {
                connection *c = &all[closed++];
                if (c->fd >= 0) {
                    printf("closing %d %llu\n", c->number, (unsigned long long)now_ns());
                    hang_up(c);
                }
                continue;
            }
            until = due < until ? due : until;
        }
        if (pace_us) {
            uint64_t due = send_due(now);
            until = due < until ? due : until;
        }
        static struct epoll_event events[EVENTS];
        int count = wait_until(epoll, events, until);
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                send_request(c);
            else
                receive(c);
        }
    }
    printf("end\n");
    printf("{\"requests\":%llu,\"chunks\":%llu,\"reads\":%llu,\"errors\":%llu,\"alive\":%d", (unsigned long long)requests,
           (unsigned long long)chunks, (unsigned long long)reads, (unsigned long long)errors, alive);
    print_percentiles("latency", &latency);
    print_percentiles("first", &first);
    print_percentiles("delay", &delay);
    printf("}\n");
    return 0;
}
