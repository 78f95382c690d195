/* A fast stand-in for an inference engine: one thread, epoll, no inference.
 *
 *   engine [SLOTS]    prints "port N", then serves until it is killed; streams at most SLOTS answers at once (0: any
 *                     number), as an engine does that has so many slots: who comes then waits for one, in turn
 *
 * GET /v1/models and /api/tags list one model; other GETs, by which routers ask how it is, are answered {}. POST
 * /api/chat is answered as Ollama does, in one line. Every other POST is answered by what its JSON body asks:
 *
 *   "bench_chunks": N       stream N server-sent events, each in a chunk and a write of its own
 *   "bench_interval_us": N  microseconds between two of them; 0: as fast as the socket takes them
 *   "bench_fill": N         octets of text in each
 *   "bench_id": N           print "closed N <ns>" when that connection closes before the end
 *
 * and without bench_chunks by one small chat completion. Each event holds the time at which it was written ("t", ns
 * of CLOCK_MONOTONIC), so that whoever reads it can tell how long it was under way.
 */

#include "wire.h"

#define MODEL "bench"
#define BODY_SEEN 8192 /* Octets at the start of a request body in which the fields are looked for. */
#define FILL_MOST 65536

typedef struct connection {
    int fd;
    size_t heap_at; /* Place in the heap of streams, 0 while there is none. */
    uint64_t due, interval, left, id;
    size_t fill;
    size_t in_size, body_left; /* Request: bytes kept, and bytes of its body still to come. */
    size_t out_at, out_size;   /* Answer: what the socket has not taken. */
    int answering, want_write;
    int slotted, waiting;      /* Has a slot, or waits for one. */
    struct connection *next;   /* Who waits behind it. */
    char in[16384 + BODY_SEEN];
    char *out;
    size_t out_room;
} connection;

static int epoll;
static char filler[FILL_MOST];
static connection **heap;
static size_t heap_size, heap_room;
static int slots, slots_taken;
static connection *first_waiting, **last_waiting = &first_waiting;

/* The streams in a heap, the one that is due first at 1. */

static void heap_put(size_t at, connection *c) {
    heap[at] = c;
    c->heap_at = at;
}

static void heap_settle(size_t at) {
    connection *c = heap[at];
    for (; at > 1 && heap[at / 2]->due > c->due; at /= 2)
        heap_put(at, heap[at / 2]);
    for (size_t child; (child = 2 * at) <= heap_size; at = child) {
        if (child < heap_size && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= c->due)
            break;
        heap_put(at, heap[child]);
    }
    heap_put(at, c);
}

static void heap_add(connection *c) {
    if (++heap_size >= heap_room) {
        heap_room = heap_room ? 2 * heap_room : 64;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    heap_put(heap_size, c);
    heap_settle(heap_size);
}

static void heap_remove(connection *c) {
    size_t at = c->heap_at;
    if (!at)
        return;
    c->heap_at = 0;
    connection *last = heap[heap_size--];
    if (last != c) {
        heap_put(at, last);
        heap_settle(at);
    }
}

/* Slots. */

static void begin_stream(connection *c);

static void wait_for_slot(connection *c) {
    c->waiting = 1;
    c->next = NULL;
    *last_waiting = c;
    last_waiting = &c->next;
}

static void wait_no_more(connection *c) {
    connection **at = &first_waiting;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (last_waiting == &c->next)
        last_waiting = at;
    c->waiting = 0;
}

/* What a connection has, or waits for, is the next one's. */
static void give_slot(connection *c) {
    if (c->waiting)
        wait_no_more(c);
    if (!c->slotted)
        return;
    c->slotted = 0;
    slots_taken--;
    connection *next = first_waiting;
    if (next) {
        wait_no_more(next);
        begin_stream(next);
    }
}

/* Writing. */

static void drop(connection *c) {
    if (c->id && (c->left || c->out_size))
        printf("closed %llu %llu\n", (unsigned long long)c->id, (unsigned long long)now_ns());
    heap_remove(c);
    give_slot(c);
    close(c->fd);
    free(c->out);
    free(c);
}

/* Send what is queued; 0 when the connection is gone. */
static int flush(connection *c) {
    while (c->out_size) {
        ssize_t sent = send(c->fd, c->out + c->out_at, c->out_size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) {
                drop(c);
                return 0;
            }
            break;
        }
        c->out_at += (size_t)sent;
        c->out_size -= (size_t)sent;
    }
    if (!c->out_size)
        c->out_at = 0;
    int want = c->out_size > 0;
    if (want != c->want_write) {
        c->want_write = want;
        watch(epoll, EPOLL_CTL_MOD, c->fd, EPOLLIN | (want ? (uint32_t)EPOLLOUT : 0), c);
    }
    return 1;
}

static void queue(connection *c, const char *data, size_t size) {
    size_t needed = c->out_at + c->out_size + size;
    if (needed > c->out_room)
        c->out = realloc(c->out, c->out_room = needed);
    memcpy(c->out + c->out_at + c->out_size, data, size);
    c->out_size += size;
}

static void queue_text(connection *c, const char *text) { queue(c, text, strlen(text)); }

static void queue_event(connection *c) {
    static char event[FILL_MOST + 512], chunk[sizeof event + 32];
    int size = snprintf(event, sizeof event,
                        "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                        "\"t\":%llu,\"model\":\"" MODEL "\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%.*s\"},"
                        "\"finish_reason\":null}]}\n\n",
                        (unsigned long long)now_ns(), (int)c->fill, filler);
    queue(c, chunk, (size_t)sprintf(chunk, "%x\r\n%s\r\n", size, event));
}

static void finish(connection *c) {
    c->answering = 0;
    c->id = 0;
    heap_remove(c);
    give_slot(c);
}

/* Write the events that are due; 0 when the connection is gone. What the socket does not take waits, as it would in
 * an engine that cannot write. */
static int stream(connection *c, uint64_t now) {
    while (c->left && !c->out_size && c->due <= now) {
        queue_event(c);
        c->due += c->interval;
        if (!--c->left)
            queue_text(c, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
        if (!flush(c))
            return 0;
    }
    if (!c->left)
        finish(c);
    else if (c->out_size)
        heap_remove(c); /* Until the socket takes it. */
    else if (c->heap_at)
        heap_settle(c->heap_at);
    else
        heap_add(c);
    return 1;
}

/* Requests. */

static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"" MODEL "\",\"object\":\"model\",\"created\":1700000000,"
    "\"owned_by\":\"bench\"}]}";
static const char TAGS[] =
    "{\"models\":[{\"name\":\"" MODEL ":latest\",\"model\":\"" MODEL ":latest\",\"size\":1000000,\"size_vram\":1000000,"
    "\"digest\":\"00\",\"modified_at\":\"2024-01-01T00:00:00Z\",\"expires_at\":\"2100-01-01T00:00:00Z\","
    "\"details\":{\"family\":\"llama\",\"parameter_size\":\"1M\",\"quantization_level\":\"F16\"}}]}";
static const char LINE[] =
    "{\"model\":\"" MODEL "\",\"created_at\":\"2024-01-01T00:00:00Z\",\"message\":{\"role\":\"assistant\","
    "\"content\":\"Hello! How can I help you today?\"},\"done\":true,\"done_reason\":\"stop\",\"total_duration\":1,"
    "\"prompt_eval_count\":9,\"eval_count\":9}\n";
static const char COMPLETION[] =
    "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"" MODEL "\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello! How can I help you today?\"},"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9,\"total_tokens\":18}}";

static int answer_json(connection *c, const char *body) {
    char head[256];
    sprintf(head, "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
            strlen(body));
    queue_text(c, head);
    queue_text(c, body);
    return flush(c);
}

static int begins(const char *head, const char *line) { return !strncmp(head, line, strlen(line)); }

static int answer(connection *c, const char *head, const char *body, size_t size) {
    if (begins(head, "GET /v1/models"))
        return answer_json(c, MODELS);
    if (begins(head, "GET /api/tags") || begins(head, "GET /api/ps"))
        return answer_json(c, TAGS);
    if (begins(head, "POST /api/chat"))
        return answer_json(c, LINE);
    c->left = number(body, size, "bench_chunks", 0);
    if (!c->left)
        return answer_json(c, begins(head, "POST") ? COMPLETION : "{}");
    c->interval = 1000 * number(body, size, "bench_interval_us", 0);
    c->id = number(body, size, "bench_id", 0);
    c->fill = number(body, size, "bench_fill", 16);
    if (c->fill > FILL_MOST)
        c->fill = FILL_MOST;
    c->answering = 1;
    if (slots && slots_taken == slots) {
        wait_for_slot(c);
        return 1;
    }
    begin_stream(c);
    return flush(c) && stream(c, now_ns());
}

/* Nothing of it is written yet. */
static void begin_stream(connection *c) {
    if (slots) {
        c->slotted = 1;
        slots_taken++;
    }
    c->due = now_ns();
    queue_text(c, "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/event-stream\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n");
    heap_add(c);
}

/* Understand what has come; 0 when the connection is gone. */
static int understand(connection *c) {
    while (!c->answering && c->in_size) {
        char *body = head_end(c->in, c->in_size);
        if (!body) {
            if (c->in_size < sizeof c->in)
                return 1;
            drop(c);
            return 0;
        }
        body[-1] = 0; /* The head as a text; its last line end is of no use. */
        const char *length = field(c->in, "Content-Length");
        size_t wanted = length ? strtoull(length, NULL, 10) : 0, head = (size_t)(body - c->in);
        size_t have = c->in_size - head;
        body[-1] = '\n';
        if (have < wanted && c->in_size < sizeof c->in)
            return 1; /* More of it fits. */
        size_t used = have < wanted ? have : wanted;
        c->body_left = wanted - used; /* The rest is read and thrown away before the answer. */
        if (c->body_left)
            return 1;
        if (!answer(c, c->in, body, used))
            return 0;
        c->in_size -= head + used;
        memmove(c->in, c->in + head + used, c->in_size);
    }
    return 1;
}

static void receive(connection *c) {
    static char waste[262144];
    for (;;) {
        size_t room = c->body_left ? sizeof waste : sizeof c->in - c->in_size;
        ssize_t got = recv(c->fd, c->body_left ? waste : c->in + c->in_size, room, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            drop(c);
            return;
        }
        if (got < 0)
            return;
        if (c->body_left) {
            c->body_left -= (size_t)got < c->body_left ? (size_t)got : c->body_left;
            if (c->body_left)
                continue;
            char *body = head_end(c->in, c->in_size);
            size_t size = (size_t)(c->in + c->in_size - body);
            c->in_size = 0;
            if (!answer(c, c->in, body, size))
                return;
        } else {
            c->in_size += (size_t)got;
            if (!understand(c))
                return;
        }
        if ((size_t)got < room)
            return;
    }
}

int main(int argc, char **argv) {
    slots = argc > 1 ? atoi(argv[1]) : 0;
    int on = 1, listening = new_socket();
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&address, size) < 0 || listen(listening, 4096) < 0)
        die("listen");
    getsockname(listening, (struct sockaddr *)&address, &size);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("port %d\n", ntohs(address.sin_port));
    memset(filler, 'x', sizeof filler);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, EPOLL_CTL_ADD, listening, EPOLLIN, NULL);
    for (;;) {
        static struct epoll_event events[EVENTS];
        int count = wait_until(epoll, events, heap_size ? heap[1]->due : now_ns() + SECOND);
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (!c) {
                int fd;
                while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    connection *new = calloc(1, sizeof *new);
                    new->fd = fd;
                    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, new);
                }
            } else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                receive(c);
            } else if (flush(c) && !c->out_size && c->answering) {
                stream(c, now_ns());
            }
        }
        for (uint64_t now = now_ns(); heap_size && heap[1]->due <= now;) {
            connection *c = heap[1];
            if (flush(c))
                stream(c, now);
        }
    }
}
