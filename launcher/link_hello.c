/* SPDX-License-Identifier: MIT
 *
 * See link_hello.h. */
#include "config.h"

#include "launcher/link_hello.h"

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
                                 const struct said *said, const char *role)
{
    unsigned char bytes[PROOF_MAX];
    size_t count;
    enum ddp_status status = proof_make(proof, role, said, sizeof *said, bytes, &count);
    if (status == DDP_OK && !connection_put(connection, FRAME_PROOF, bytes, count))
        return DDP_ERR_MEMORY;
    return status;
}

void hello_show_version(const struct hello *hello, char *out, size_t size)
{
    if (hello->protocol == FRAME_PROTOCOL)
        snprintf(out, size, "ddprun %.31s", hello->version);
    else
        snprintf(out, size, "another version of ddprun (link %u, here %u)", hello->protocol,
                 FRAME_PROTOCOL);
}
