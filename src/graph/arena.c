/* SPDX-License-Identifier: MIT
 *
 * The place of each activation in the arena. Forward of operation i happens at step i; then comes
 * backward in reverse, before the operations of a block those that are computed again. A value, a
 * gradient, or what an operation keeps beside them occupies memory from the first to the last step
 * that touches it; what is computed again lives twice. Some share memory outright: the result of an
 * elementwise operation takes the place of an input that is not needed any more, its gradient that
 * of the output's or of the input, and a sum passes its gradient on. Constants live all the time.
 * Then largest first, each at the lowest offset where it meets no other item that
 * is alive at the same time: the greedy-by-size rule of Pisarchyk and Lee, "Efficient Memory
 * Management for Deep Neural Net Inference" (2020). */
#include "config.h"

#include "graph/internal.h"

#include "core/memory.h"

#include <stdlib.h>

struct planner {
    const ddp_graph *graph;
    unsigned parts;
    bool trains;
    struct ddp_graph_plan *plan;
    /* By node: the step of its backward and, if it is computed again, -1 if not, of that. */
    int *backward_step, *again_step;
};

static int backward_step(const struct planner *p, int node)
{
    return p->backward_step[node];
}

static bool runs(const struct planner *p, int node)
{
    return p->parts & (node < p->graph->network_count ? DDP_EXEC_NETWORK : DDP_EXEC_LOSS);
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static void extend(struct placement *item, int step)
{
    item->last = max_int(item->last, step);
}

static int add_item(struct planner *p, int first, int last, size_t bytes)
{
    struct ddp_graph_plan *plan = p->plan;
    plan->items[plan->item_count] = (struct placement){
        .first = first, .last = last, .bytes = ddp_align_up(bytes, DDP_CACHE_LINE)};
    return plan->item_count++;
}

static bool is_activation(const ddp_tensor *tensor)
{
    return tensor && ddp_tensor_base(tensor)->kind == TENSOR_ACTIVATION;
}

/* Is there a backward of node n at all? Not where nothing before it is learned. */
static bool has_backward(const struct planner *p, int n)
{
    return p->graph->nodes[n].output->needs_gradient;
}

/* Does backward of node n, or what computes it again, read the value of a tensor? */
static bool backward_reads(const struct planner *p, const ddp_tensor *tensor, int n, bool again)
{
    const struct node *node = &p->graph->nodes[n];
    const bool backward = has_backward(p, n);
    bool reads = node->output == tensor && node->keeps_output && backward;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && ddp_tensor_base(node->inputs[i]) == tensor)
            reads |= again || (backward && (node->keeps_inputs >> i & 1));
    return reads;
}

/* The last step at which a tensor's value is read, in its first life or the second. */
static int last_read(const struct planner *p, const ddp_tensor *tensor, bool second)
{
    const int producer = tensor->producer;
    const bool lives_twice = p->plan->value[tensor->id].again >= 0;
    int last = second ? p->again_step[producer] : max_int(producer, tensor->last_reader);
    if (!p->trains || (lives_twice && !second))
        return last;
    for (int n = producer; n <= max_int(producer, tensor->last_reader); n++) {
        if (p->again_step[n] >= 0 && (n == producer || backward_reads(p, tensor, n, true)))
            last = max_int(last, p->again_step[n]);
        if (backward_reads(p, tensor, n, false))
            last = max_int(last, backward_step(p, n));
    }
    return last;
}

/* The step in which node n begins to write: with the sum before it, if they are one operation. */
static int first_step(const struct planner *p, int n)
{
    return ddp_graph_fuses(p->graph, n - 1) ? n - 1 : n;
}

/* The item that holds a tensor when node n runs, or is computed again. */
static int item_of(const struct planner *p, const ddp_tensor *tensor, bool again)
{
    const struct lives *lives = &p->plan->value[tensor->id];
    return again && lives->again >= 0 ? lives->again : lives->forward;
}

/* An item of an input of node n that its output can take over: nothing needs the old value. */
static int item_to_take(const struct planner *p, int n, bool again)
{
    const struct node *node = &p->graph->nodes[n];
    const int candidates = node->op->joins ? 2 : 1, step = again ? p->again_step[n] : n;
    if (!node->op->in_place)
        return -1;
    for (int i = 0; i < candidates; i++) {
        if (!is_activation(node->inputs[i]))
            continue;
        const ddp_tensor *input = ddp_tensor_base(node->inputs[i]);
        const int item = item_of(p, input, again);
        if (item >= 0 && input != p->graph->output &&
            ddp_tensor_bytes(input) == ddp_tensor_bytes(node->output) &&
            p->plan->items[item].last <= step)
            return item;
    }
    return -1;
}

/* From before the first step to behind the last. */
static void place_constants(struct planner *p)
{
    const ddp_graph *graph = p->graph;
    for (int i = 0; i < graph->tensor_count; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (tensor->kind == TENSOR_CONSTANT && !tensor->base)
            p->plan->value[i].forward = add_item(p, -1, graph->node_count + p->plan->backward_count,
                                                 ddp_tensor_bytes(tensor));
    }
}

static void place_values(struct planner *p)
{
    const ddp_graph *graph = p->graph;
    for (int n = 0; n < graph->node_count; n++) {
        const ddp_tensor *output = graph->nodes[n].output;
        const bool reader_runs = output->last_reader >= 0 && runs(p, output->last_reader);
        if (!runs(p, n) && !reader_runs)
            continue;
        int item = runs(p, n) ? item_to_take(p, n, false) : -1;
        if (item < 0)
            item = add_item(p, first_step(p, n), n, ddp_tensor_bytes(output));
        p->plan->value[output->id].forward = item;
        extend(&p->plan->items[item], last_read(p, output, false));
    }
}

/* The second lives, in the order in which they begin. */
static void place_again(struct planner *p)
{
    for (int i = 0; i < p->plan->backward_count; i++) {
        const int n = ~p->plan->backward[i];
        if (n < 0)
            continue;
        const ddp_tensor *output = p->graph->nodes[n].output;
        struct lives *lives = &p->plan->value[output->id];
        const int step = p->again_step[n];
        if (lives->again < 0)
            continue;
        lives->again = item_to_take(p, n, true);
        if (lives->again < 0)
            lives->again = add_item(p, step, step, ddp_tensor_bytes(output));
        extend(&p->plan->items[lives->again], last_read(p, output, true));
    }
}

/* The item of a tensor's value, if the gradient takes its place: its last reader writes it in
 * forward already, or element by element, and nothing needs the value again. Else -1. */
static int value_to_replace(const struct planner *p, const ddp_tensor *tensor)
{
    const int reader = tensor->last_reader;
    const struct ddp_op *op = p->graph->nodes[reader].op;
    const int item = item_of(p, tensor, !op->gradient_in_forward);
    const int written = op->gradient_in_forward ? reader : backward_step(p, reader);
    const bool may = op->gradient_in_forward || (op->turns_inputs && tensor != p->graph->output);
    return may && item >= 0 && p->plan->items[item].last <= written ? item : -1;
}

/* Is join n the first to touch this input's gradient in backward? */
static bool hands_on(const struct planner *p, const ddp_tensor *input, int n)
{
    return is_activation(input) && input->needs_gradient && input->last_reader == n &&
           p->plan->gradient[input->id] < 0;
}

/* Is there anything in this item, beside the output of node n, that backward still needs? */
static bool held_by_others(const struct planner *p, int item, int n)
{
    for (int i = 0; i < n; i++)
        if (p->plan->gradient[p->graph->nodes[i].output->id] == item)
            return true;
    return false;
}

/* The reader of a tensor before node n; -1: none. */
static int previous_reader(const struct planner *p, const ddp_tensor *tensor, int n)
{
    for (int r = n - 1; r >= tensor->first_reader; r--)
        for (int i = 0; i < p->graph->nodes[r].input_count; i++)
            if (p->graph->nodes[r].inputs[i] &&
                ddp_tensor_base(p->graph->nodes[r].inputs[i]) == tensor)
                return r;
    return -1;
}

/* A join's gradient goes to both inputs unchanged. The input that was made last gets the very
 * memory if the join is its only reader: its producer's backward comes before anything is added to
 * the other's. The other input gets it too if its other readers come before that producer, so that
 * they add to it when that producer is done, and that producer leaves it as it is. */
static void share_gradients(struct planner *p, int n)
{
    const struct node *node = &p->graph->nodes[n];
    int *gradient = p->plan->gradient;
    const int item = gradient[node->output->id];
    const ddp_tensor *late = ddp_tensor_base(node->inputs[0]);
    const ddp_tensor *early = ddp_tensor_base(node->inputs[1]);
    if (late == early || held_by_others(p, item, n))
        return;
    if (early->producer > late->producer) {
        const ddp_tensor *swap = late;
        late = early;
        early = swap;
    }
    const bool late_shares = hands_on(p, late, n) && late->reader_count == 1;
    bool early_shares = hands_on(p, early, n);
    if (late_shares && early_shares)
        early_shares = previous_reader(p, early, n) < late->producer &&
                       !p->graph->nodes[late->producer].overwrites_dy;
    if (late_shares)
        gradient[late->id] = item;
    if (early_shares)
        gradient[early->id] = item;
}

/* The gradient of node n's output becomes that of its input where it lies. */
static void pass_gradient(struct planner *p, int n)
{
    const ddp_tensor *input = ddp_tensor_base(p->graph->nodes[n].inputs[0]);
    const int item = p->plan->gradient[p->graph->nodes[n].output->id];
    if (hands_on(p, input, n) && !held_by_others(p, item, n))
        p->plan->gradient[input->id] = item;
}

/* Gradients, in the order of backward, so that a join's inputs see its output's. */
static void place_gradients(struct planner *p)
{
    const ddp_graph *graph = p->graph;
    for (int n = graph->node_count - 1; n >= 0; n--) {
        const ddp_tensor *tensor = graph->nodes[n].output;
        const int last = backward_step(p, n);
        const bool reader_runs = tensor->last_reader >= 0 && runs(p, tensor->last_reader);
        if (tensor->last_reader < 0 || !tensor->needs_gradient || (!runs(p, n) && !reader_runs))
            continue;
        if (p->plan->gradient[tensor->id] < 0)
            p->plan->gradient[tensor->id] = value_to_replace(p, tensor);
        if (p->plan->gradient[tensor->id] < 0) {
            const int reader = tensor->last_reader;
            const int written =
                graph->nodes[reader].op->gradient_in_forward ? reader : backward_step(p, reader);
            p->plan->gradient[tensor->id] = add_item(p, written, last, ddp_tensor_bytes(tensor));
        }
        extend(&p->plan->items[p->plan->gradient[tensor->id]], last);
        if (graph->nodes[n].op->joins && runs(p, n) && p->plan->gradient[tensor->id] >= 0)
            share_gradients(p, n);
        if (graph->nodes[n].op->turns_dy && runs(p, n))
            pass_gradient(p, n);
    }
}

static void place_extras(struct planner *p)
{
    struct ddp_graph_plan *plan = p->plan;
    for (int n = 0; n < p->graph->node_count; n++) {
        const struct node *node = &p->graph->nodes[n];
        const int backward = backward_step(p, n), again = p->again_step[n];
        if (!runs(p, n))
            continue;
        if (node->forward_scratch)
            plan->scratch[n].forward = add_item(p, n, n, node->forward_scratch);
        if (node->forward_scratch && again >= 0)
            plan->scratch[n].again = add_item(p, again, again, node->forward_scratch);
        if (p->trains && node->saved_bytes) {
            const bool twice = again >= 0 && !node->saves_once;
            const int last = twice || !has_backward(p, n) ? n : backward;
            plan->saved[n].forward = add_item(p, first_step(p, n), last, node->saved_bytes);
            if (twice)
                plan->saved[n].again = add_item(p, again, backward, node->saved_bytes);
        }
        if (p->trains && node->backward_scratch && has_backward(p, n))
            plan->backward_scratch[n] = add_item(p, backward, backward, node->backward_scratch);
    }
}

struct sized {
    int item;
    size_t bytes;
};

static int larger_first(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->item - y->item;
}

/* The lowest offset at which an item meets none of those already placed. */
static size_t find_offset(const struct ddp_graph_plan *plan, const struct sized *order, int count)
{
    const struct placement *item = &plan->items[order[count].item];
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < count; i++) {
            const struct placement *other = &plan->items[order[i].item];
            bool same_time = other->first <= item->last && item->first <= other->last;
            bool same_place =
                other->offset < offset + item->bytes && offset < other->offset + other->bytes;
            if (same_time && same_place) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

static enum ddp_status give_offsets(struct ddp_graph_plan *plan)
{
    struct sized *order = ddp_array_alloc((size_t)plan->item_count + 1, sizeof *order);
    if (!order)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < plan->item_count; i++)
        order[i] = (struct sized){i, plan->items[i].bytes};
    qsort(order, (size_t)plan->item_count, sizeof *order, larger_first);
    for (int i = 0; i < plan->item_count; i++) {
        struct placement *item = &plan->items[order[i].item];
        item->offset = find_offset(plan, order, i);
        if (item->offset + item->bytes > plan->bytes)
            plan->bytes = item->offset + item->bytes;
    }
    free(order);
    return DDP_OK;
}

/* Does backward need node n of a block computed again? Of its readers those in later blocks are
 * decided already: what they read then is kept from forward.
 *   again  by node, of those behind n */
static bool needs_again(const struct planner *p, int n, const bool *again, bool *kept)
{
    const ddp_graph *graph = p->graph;
    const ddp_tensor *output = graph->nodes[n].output;
    const bool backward = has_backward(p, n);
    bool needed = graph->nodes[n].keeps_output && backward;
    *kept = output == graph->output;
    for (int r = n + 1; r <= output->last_reader; r++) {
        if (!backward_reads(p, output, r, again[r]))
            continue;
        needed = true;
        *kept |= graph->nodes[r].block != graph->nodes[n].block;
    }
    return (needed && !*kept) ||
           (backward && graph->nodes[n].saved_bytes && !graph->nodes[n].saves_once);
}

/* Is a tensor there in backward without more memory: kept for other reasons, or made again?
 *   cheap  by node, of those before its reader */
static bool is_there(const struct planner *p, const ddp_tensor *tensor, const bool *cheap)
{
    if (!is_activation(tensor))
        return true;
    const ddp_tensor *base = ddp_tensor_base(tensor);
    bool there = cheap[base->producer] || backward_reads(p, base, base->producer, false);
    for (int r = base->producer + 1; !there && r <= base->last_reader; r++)
        there = backward_reads(p, base, r, false);
    return there;
}

/* Marks what may be computed again: all of a block or, beside frozen weights, what costs little. */
static void mark_cheap(const struct planner *p, bool *cheap)
{
    const ddp_graph *graph = p->graph;
    for (int n = 0; n < graph->network_count; n++) {
        const struct node *node = &graph->nodes[n];
        cheap[n] = node->block >= 0 &&
                   (graph->recompute || (graph->frozen_count > 0 && node->op->costs_little));
        for (int i = 0; !graph->recompute && cheap[n] && i < node->input_count; i++)
            cheap[n] = is_there(p, node->inputs[i], cheap);
    }
}

/* Marks what is computed again, and what of it lives twice.
 *   again  as mark_cheap() left it */
static void choose_again(struct planner *p, bool *again)
{
    const ddp_graph *graph = p->graph;
    for (int n = graph->network_count - 1; n >= 0; n--) {
        bool kept = false;
        again[n] = again[n] && needs_again(p, n, again, &kept);
        if (again[n] && !kept)
            p->plan->value[graph->nodes[n].output->id].again = 0; /* placed later */
    }
}

/* The order of backward: what is computed again comes before the block's first backward. */
static void order_backward(struct planner *p, const bool *again)
{
    const ddp_graph *graph = p->graph;
    struct ddp_graph_plan *plan = p->plan;
    for (int n = graph->node_count - 1; n >= 0; n--) {
        const int block = graph->nodes[n].block;
        if (block >= 0 && (n + 1 == graph->node_count || graph->nodes[n + 1].block != block)) {
            int first = n;
            while (first > 0 && graph->nodes[first - 1].block == block)
                first--;
            for (int m = first; m <= n; m++)
                if (again[m]) {
                    p->again_step[m] = graph->node_count + plan->backward_count;
                    plan->backward[plan->backward_count++] = ~m;
                }
        }
        p->backward_step[n] = graph->node_count + plan->backward_count;
        plan->backward[plan->backward_count++] = n;
    }
}

static int *indices(int count)
{
    int *list = ddp_array_alloc((size_t)count + 1, sizeof *list);
    for (int i = 0; list && i < count; i++)
        list[i] = -1;
    return list;
}

static struct lives *lives(int count)
{
    struct lives *list = ddp_array_alloc((size_t)count + 1, sizeof *list);
    for (int i = 0; list && i < count; i++)
        list[i] = (struct lives){-1, -1};
    return list;
}

static enum ddp_status place_all(struct planner *p)
{
    bool *again = ddp_array_alloc((size_t)p->graph->node_count + 1, sizeof *again);
    p->backward_step = indices(p->graph->node_count);
    p->again_step = indices(p->graph->node_count);
    const bool made = again && p->backward_step && p->again_step;
    if (made) {
        if (p->trains && runs(p, 0)) {
            mark_cheap(p, again);
            choose_again(p, again);
        }
        order_backward(p, again);
        place_constants(p);
        place_values(p);
        place_again(p);
        if (p->trains)
            place_gradients(p);
        place_extras(p);
    }
    free(again);
    free(p->backward_step);
    free(p->again_step);
    return made ? give_offsets(p->plan) : DDP_ERR_MEMORY;
}

enum ddp_status ddp_graph_plan_make(const ddp_graph *graph, unsigned parts,
                                    struct ddp_graph_plan *plan)
{
    const int nodes = graph->node_count, tensors = graph->tensor_count;
    struct planner planner = {graph, parts, parts & DDP_EXEC_BACKWARD, plan, NULL, NULL};
    *plan = (struct ddp_graph_plan){
        .items = ddp_array_alloc((size_t)(nodes * 8 + tensors) + 1, sizeof *plan->items),
        .value = lives(tensors),
        .gradient = indices(tensors),
        .saved = lives(nodes),
        .scratch = lives(nodes),
        .backward_scratch = indices(nodes),
        .backward = indices(2 * nodes),
    };
    enum ddp_status status = DDP_ERR_MEMORY;
    if (plan->items && plan->value && plan->gradient && plan->saved && plan->scratch &&
        plan->backward_scratch && plan->backward)
        status = place_all(&planner);
    if (status != DDP_OK)
        ddp_graph_plan_free(plan);
    return status;
}

void ddp_graph_plan_free(struct ddp_graph_plan *plan)
{
    free(plan->items);
    free(plan->value);
    free(plan->gradient);
    free(plan->saved);
    free(plan->scratch);
    free(plan->backward_scratch);
    free(plan->backward);
    *plan = (struct ddp_graph_plan){0};
}
