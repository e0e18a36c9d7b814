/* SPDX-License-Identifier: MIT
 *
 * See hello.h. */
#include "config.h"

#include "launcher/link/hello.h"

#include "core/hash.h"

#include <stdio.h>
#include <string.h>

enum ddp_status hello_make(struct hello *hello, const struct link_setup *setup)
{
    *hello = (struct hello){
        .magic = FRAME_MAGIC,
        .protocol = FRAME_PROTOCOL,
        .method = setup->proof->method,
        .node = (uint32_t)setup->node,
        .node_count = (uint32_t)setup->node_count,
        .job = ddp_hash(setup->job, strlen(setup->job)),
    };
    snprintf(hello->version, sizeof hello->version, "%s", ddp_version());
    return proof_random(hello->nonce, sizeof hello->nonce);
}

enum ddp_status hello_send_proof(struct connection *connection, const struct proof *proof,
                                 struct said *said, bool node0)
{
    unsigned char bytes[PROOF_MAX];
    size_t count;
    enum ddp_status status =
        proof_make(proof, node0 ? ROLE_NODE0 : ROLE_NODE, said, SAID_OPENLY, bytes, &count,
                   node0 ? said->node0_secret : said->node_secret);
    if (status == DDP_OK && !connection_put(connection, FRAME_PROOF, bytes, count))
        return DDP_ERR_MEMORY;
    return status;
}

bool hello_check_proof(const struct proof *proof, struct said *said, bool node0,
                       const struct frame *frame, char why[static PROOF_WHY])
{
    return proof_check(proof, node0 ? ROLE_NODE0 : ROLE_NODE, said, SAID_OPENLY, frame->data,
                       frame->bytes, node0 ? said->node0_secret : said->node_secret, why);
}

void hello_seal(struct connection *connection, const struct proof *proof, const struct said *said,
                bool node0)
{
    static const char *const roles[] = {"ddprun link, what a node sends",
                                        "ddprun link, what node 0 sends"};
    proof_seal_begin(&connection->out_seal, proof, roles[node0], said, sizeof *said);
    proof_seal_begin(&connection->in_seal, proof, roles[!node0], said, sizeof *said);
}

void hello_show_version(const struct hello *hello, char *out, size_t size)
{
    if (hello->protocol == FRAME_PROTOCOL)
        snprintf(out, size, "ddprun %.31s", hello->version);
    else
        snprintf(out, size, "another version of ddprun (link %u, here %u)", hello->protocol,
                 FRAME_PROTOCOL);
}
