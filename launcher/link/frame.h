/* SPDX-License-Identifier: MIT
 *
 * The bytes of the link: frames of a header and bounded data, and what each may look like. Knows
 * nothing of sockets, so that a fuzzer can try it. Both ends have the same byte order; a machine of
 * the other one cannot even say hello. */
#ifndef DDP_LAUNCHER_LINK_FRAME_H
#define DDP_LAUNCHER_LINK_FRAME_H

#include "launcher/link/link.h"

#define FRAME_MAGIC    UINT64_C(0x6b6e696c70726464) /* "ddrplink" in memory */
#define FRAME_PROTOCOL 7u

/* Kinds below LINK_POSTED are the link's own. */
enum {
    FRAME_HELLO = 1,   /* struct hello, from either side: all that is read of a stranger */
    FRAME_PROOF = 2,   /* bytes of proof.h */
    FRAME_JOIN = 3,    /* struct join */
    FRAME_REFUSED = 4, /* struct refusal */
    FRAME_MEMBER = 5,  /* struct member, cut behind the name: one for each node, in order */
    FRAME_WELCOME = 6, /* struct welcome: those are the members from now on */
    FRAME_PING = 7,    /* struct link_status */
    FRAME_GOODBYE = 8,
    FRAME_LOST = 9, /* text: why the receiver is taken for lost; nothing follows */
};

/* How far a connection has come: which kinds it may send. */
enum frame_phase {
    PHASE_HELLO,   /* nothing is known of the peer */
    PHASE_PROOF,   /* it has said who it is, and has to prove it */
    PHASE_JOIN,    /* node 0 waits for what a node tells about itself */
    PHASE_JOINED,  /* node 0 waits for other nodes */
    PHASE_WAITING, /* a node waits until all are there */
    PHASE_RUNNING,
};

struct frame_header {
    uint32_t bytes; /* of data behind this */
    uint32_t kind;
};

/* Never changes its size, or the first two members their place: the other side may be of any
 * version. */
struct hello {
    uint64_t magic;
    uint32_t protocol;
    uint32_t method;           /* enum proof_method */
    uint32_t node, node_count; /* of an elastic job: where it would like to be, and the most */
    uint64_t job;              /* hash of its name */
    unsigned char nonce[32];
    char version[32]; /* of ddprun; ends with 0 */
    unsigned char spare[32];
};

#define FRAME_COMMAND_MAX 1024
#define CONTACT_BYTES     80

struct join {
    uint32_t nproc;
    uint32_t max_restarts;
    uint32_t least_nodes;
    uint32_t epoch; /* as in struct link_setup */
    uint64_t command_hash;
    char version[32];
    char host[LINK_NAME_BYTES];
    char contact[CONTACT_BYTES];     /* "10.0.0.2 29500": where it would be node 0; "": nowhere */
    char command[FRAME_COMMAND_MAX]; /* its beginning */
};

/* Why a connection is refused. Before a proof there is no text. */
enum refusal_reason {
    REFUSED_JOB_ENDS = 1, /* the text is the error of the whole job */
    REFUSED_PROTOCOL = 2,
    REFUSED_JOB = 3,    /* the port is another job's */
    REFUSED_METHOD = 4, /* of proof */
    REFUSED_PROOF = 5,
    REFUSED_STOPPED = 6, /* a node was asked to stop: all do */
};

#define REFUSAL_TEXT 1000

struct refusal {
    uint32_t reason;
    uint32_t method; /* node 0's */
    char text[REFUSAL_TEXT];
};

struct member {
    uint32_t nproc;
    char contact[CONTACT_BYTES]; /* each ends with a 0 */
    char name[LINK_NAME_BYTES];
};

struct welcome {
    uint32_t node, node_count; /* the receiver's place among the members; behind them it waits */
    uint32_t worker_port;
    uint32_t restart, failures;
    uint32_t first_size; /* as in struct link_round */
    uint64_t begun;
};

#define FRAME_LOST_MAX 640
#define FRAME_DATA_MAX sizeof(struct link_text)

/* Room for the data of any frame. */
union frame_data {
    unsigned char bytes[FRAME_DATA_MAX];
    struct hello hello;
    struct join join;
    struct refusal refusal;
    struct member member;
    struct welcome welcome;
    struct link_status status;
    struct link_step step;
    struct link_posted posted;
    struct link_text text;
};

enum frame_result { FRAME_NONE, FRAME_READY, FRAME_BAD };

struct frame {
    uint32_t kind;
    size_t bytes;
    const unsigned char *data; /* not aligned */
};

/* Whether a frame of this kind may have so many bytes. */
bool frame_size_fits(uint32_t kind, size_t bytes);

/* Takes a frame from the beginning of `bytes` bytes. FRAME_NONE: it is not whole yet; *wanted
 * [out]: bytes that it has with its header, 0 if not even that is there. FRAME_BAD: none that may
 * come in this phase; decided as soon as the header is there. */
enum frame_result frame_take(enum frame_phase phase, const unsigned char *input, size_t bytes,
                             struct frame *frame, size_t *wanted);

/* Copies the frame's data and checks what stands in them: texts that end, slots that exist. False:
 * they are not to be used. */
bool frame_read(const struct frame *frame, union frame_data *data);

#endif
