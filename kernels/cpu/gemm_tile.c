/* SPDX-License-Identifier: MIT
 *
 * See gemm_tile.h. A panel of columns of B is packed part by part of K; against it come panels of
 * rows of A, each packed as it comes. Where an operand is read only once, or all but so, it is read
 * in place. */
#include "config.h"

#include "kernels/cpu/gemm_tile.h"

#include "core/bf16.h"
#include "core/memory.h"
#include "kernels/cpu/gemm_micro.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#define PANEL            (768 * DDP_GEMM_PART) /* elements of B packed at once: 1.1 MiB */
#define SMALL_PANEL      16384                 /* of them, on the stack */
#define IN_PLACE_PANELS  3                     /* of rows of C for which B is not packed */
#define IN_PLACE_COLUMNS 4                     /* strips of C for which A is not packed */
#define PACK_DEPTHS      8                     /* packed at a time where lines lie side by side */
#define ROW_PANELS       4                     /* of A, packed at once where they do */
#define COPIED_ROWS      256                   /* rows of C, or elements of B, up to which */
#define COPIED_ELEMENTS  524288                /* the first rows pack B on their way */
#define ROW_COLUMNS      1024                  /* of a single row, at a time */
#define ROW_SUMS         4096                  /* of several: these stay in the first cache */
#define FEW_ELEMENTS     524288                /* of B, from which on memory bounds few rows */
#define WHOLE_ROWS       64                    /* of A, up to which they are packed but once */
#define WIDE_PANELS      2                     /* of rows, for wide micro-kernels */
#define UNPACKED_STRIP   48                    /* columns of any strip */
#define UNPACKED_COLUMNS 768                   /* whole strips that are unpacked at once */

struct multiply {
    const struct ddp_gemm *gemm;
    const struct ddp_gemm_set *set;
    enum ddp_gemm_form a_form, b_form;
    int64_t strip, most_rows;      /* columns and rows of the largest micro-kernel that is used */
    int64_t row, rows;             /* of C */
    int64_t depth, depths, packed; /* the part of K, and how many packed depths it becomes */
    int64_t column, columns;       /* the panel */
    float *panel, *left;           /* packed B and A */
    bool a_whole, a_in_place, b_in_place, b_copied, add, last;
};

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

/* Of those that are left. */
static int64_t depths_of_part(const struct ddp_gemm *g, int64_t rest)
{
    return g->bf16 ? at_most(2 * ddp_gemm_part((rest + 1) / 2), rest) : ddp_gemm_part(rest);
}

static int64_t round_up(int64_t value, int64_t granule)
{
    return (value + granule - 1) / granule * granule;
}

static const void *element_of(const void *operand, bool bf16, int64_t at)
{
    return (const char *)operand + at * (bf16 ? 2 : 4);
}

/* The part of K that begins at `depth`. */
static void begin_part(struct multiply *run, int64_t depth)
{
    const struct ddp_gemm *g = run->gemm;
    run->depth = depth;
    run->depths = depths_of_part(g, g->k - depth);
    run->packed = ddp_gemm_packed(run->depths, run->a_form);
    run->add = depth > 0 || g->beta != 0;
    run->last = depth + run->depths == g->k;
}

static struct ddp_gemm_lines columns_of_b(const struct multiply *run, int64_t column,
                                          int64_t columns)
{
    const struct ddp_gemm *g = run->gemm;
    const bool bf16 = g->bf16 || g->b_bf16;
    const int64_t at = g->transpose_b ? column * g->ldb + run->depth : run->depth * g->ldb + column;
    return (struct ddp_gemm_lines){.from = element_of(g->b, bf16, at),
                                   .step = g->ldb,
                                   .along = !g->transpose_b,
                                   .lines = columns,
                                   .depths = run->depths,
                                   .readable = g->n - column,
                                   .form = run->b_form};
}

static struct ddp_gemm_lines rows_of_a(const struct multiply *run, int64_t row, int64_t rows)
{
    const struct ddp_gemm *g = run->gemm;
    const int64_t at = g->transpose_a ? run->depth * g->lda + row : row * g->lda + run->depth;
    return (struct ddp_gemm_lines){.from = element_of(g->a, g->bf16, at),
                                   .step = g->lda,
                                   .along = g->transpose_a,
                                   .lines = rows,
                                   .depths = run->depths,
                                   .readable = g->m - row,
                                   .form = run->a_form};
}

/* Flushing of denormals, switched on around products of bf16 alone. */
static unsigned begin_flushing(bool bf16)
{
#ifdef __x86_64__
    const unsigned before = _mm_getcsr();
    if (bf16)
        _mm_setcsr(before | 0x8040);
    return before;
#else
    (void)bf16;
    return 0;
#endif
}

static void end_flushing(bool bf16, unsigned before)
{
#ifdef __x86_64__
    if (bf16)
        _mm_setcsr(before);
#else
    (void)bf16;
    (void)before;
#endif
}

/* A block of C at the edge, where the micro-kernel is wider than what is left, goes through a
 * buffer if there are no masks. */
static void run_kernel(const struct ddp_gemm_set *set, ddp_gemm_kernel *kernel,
                       struct ddp_gemm_micro *micro, int64_t rows, int64_t width)
{
    _Alignas(DDP_CACHE_LINE) float edge[DDP_GEMM_ROWS_MOST * 32];
    float *c = micro->c;
    const int64_t ldc = micro->ldc, columns = micro->columns;
    if (columns == width || set->masks) {
        kernel(micro);
        return;
    }
    micro->c = edge;
    micro->ldc = width;
    for (int64_t i = 0; micro->add && i < rows; i++)
        memcpy(edge + i * width, c + i * ldc, (size_t)columns * sizeof *c);
    kernel(micro);
    for (int64_t i = 0; i < rows; i++)
        memcpy(c + i * ldc, edge + i * width, (size_t)columns * sizeof *c);
    micro->c = c;
    micro->ldc = ldc;
}

/* Whether a strip of B is read where it is by the rows from `row` on; `copied`: and packed. */
static bool strip_in_place(const struct multiply *run, int64_t columns)
{
    const struct ddp_gemm *g = run->gemm;
    return run->b_form == DDP_GEMM_F32 && !g->b_block && !g->transpose_b && columns == run->strip;
}

/* Fetches a share of lines whose elements lie side by side: part `at` of `parts`. */
static void fetch_share(const struct ddp_gemm_lines *lines, int64_t at, int64_t parts)
{
    const int64_t size = lines->form == DDP_GEMM_F32 ? 4 : 2, bytes = lines->depths * size;
    const int64_t end = lines->lines * (at + 1) / parts;
    for (int64_t line = lines->lines * at / parts; line < end; line++)
        for (int64_t byte = 0; byte < bytes; byte += DDP_CACHE_LINE)
            __builtin_prefetch((const char *)lines->from + line * lines->step * size + byte);
}

/* The strips of a panel against `rows` rows of A. */
static void run_rows(const struct multiply *run, const float *packed, int64_t row, int64_t rows,
                     bool first)
{
    const struct ddp_gemm_lines behind =
        rows_of_a(run, row + rows, at_most(run->row + run->rows - row - rows, rows));
    const int64_t strips = (run->columns + run->strip - 1) / run->strip;
    const struct ddp_gemm *g = run->gemm;
    const struct ddp_gemm_set *set = run->set;
    struct ddp_gemm_micro micro = {.depths = run->packed, .add = run->add, .ldc = g->ldc};
    enum ddp_gemm_kind kind = DDP_GEMM_PACKED;
    const struct ddp_gemm_lines left = rows_of_a(run, row, rows);
    micro.a = packed;
    micro.a_step = round_up(set->rows, set->lanes);
    if (run->a_in_place) {
        micro.a = left.from;
        micro.a_step = g->lda;
        kind = g->transpose_a ? DDP_GEMM_PACKED : DDP_GEMM_A_IN_PLACE;
    }
    const unsigned flushing = begin_flushing(g->bf16);
    for (int64_t j = 0; j < run->columns; j += run->strip) {
        const int64_t here = at_most(run->columns - j, run->strip);
        const int64_t width = round_up(here, set->lanes);
        enum ddp_gemm_kind use = kind;
        micro.b = run->panel + j * run->packed;
        micro.b_step = width;
        if (strip_in_place(run, here) && (run->b_in_place || first)) {
            if (!run->b_in_place)
                use = DDP_GEMM_B_COPIED;
            micro.copy = run->panel + j * run->packed;
            micro.b = columns_of_b(run, run->column + j, here).from;
            micro.b_step = g->ldb;
        }
        micro.c = g->c + row * g->ldc + run->column + j;
        if (!g->transpose_a && strips > 1)
            fetch_share(&behind, j / run->strip, strips);
        micro.columns = here;
        run_kernel(set, set->kernels[use][rows - 1][width / set->lanes - 1], &micro, rows, width);
    }
    end_flushing(g->bf16, flushing);
    if (run->last && g->epilogue)
        g->epilogue(g->epilogue_arg, row, rows, run->column, run->columns);
}

/* Some depths of lines. */
static struct ddp_gemm_lines depths_of(const struct ddp_gemm_lines *lines, int64_t depth,
                                       int64_t depths)
{
    struct ddp_gemm_lines some = *lines;
    some.from = element_of(lines->from, lines->form != DDP_GEMM_F32,
                           lines->along ? depth * lines->step : depth);
    some.depths = at_most(lines->depths - depth, depths);
    return some;
}

/* Where depths go that are `depth` behind the first one, in a strip of some width. */
static int64_t packed_at(const struct multiply *run, int64_t depth, int64_t width)
{
    return (run->a_form == DDP_GEMM_PAIRS ? depth / 2 : depth) * width;
}

/* `count` of the `panels` that rows of A are cut into. Rows that lie side by side are packed a few
 * depths at a time, in the order of memory. */
static void pack_rows(const struct multiply *run, int64_t row, int64_t panel, int64_t panels,
                      int64_t count)
{
    const int64_t width = round_up(run->set->rows, run->set->lanes);
    const int64_t some = count > 1 ? PACK_DEPTHS : run->depths;
    for (int64_t depth = 0; depth < run->depths; depth += some) {
        int64_t first = row;
        for (int64_t i = 0; i < count; i++) {
            const int64_t rows = run->rows / panels + (panel + i < run->rows % panels);
            const struct ddp_gemm_lines lines = rows_of_a(run, first, rows);
            const struct ddp_gemm_lines left = depths_of(&lines, depth, some);
            run->set->pack(run->left + i * width * run->packed + packed_at(run, depth, width),
                           width, &left);
            first += rows;
        }
    }
}

/* What the first rows do not pack on their way. */
static void pack_panel(const struct multiply *run)
{
    const bool on_the_way =
        run->b_in_place || (run->b_copied && (!run->a_in_place || run->gemm->transpose_a));
    const int64_t some =
        run->gemm->transpose_b || run->b_in_place || run->b_copied ? run->depths : PACK_DEPTHS;
    for (int64_t depth = 0; depth < run->depths; depth += some) {
        for (int64_t j = 0; j < run->columns; j += run->strip) {
            const int64_t here = at_most(run->columns - j, run->strip);
            const int64_t width = round_up(here, run->set->lanes);
            if (strip_in_place(run, here) && on_the_way)
                continue;
            const struct ddp_gemm_lines lines = columns_of_b(run, run->column + j, here);
            const struct ddp_gemm_lines right = depths_of(&lines, depth, some);
            run->set->pack(run->panel + j * run->packed + packed_at(run, depth, width), width,
                           &right);
        }
    }
}

/* A B that lies in blocks: the strips of some lines are unpacked, and packed at once. */
static void pack_blocks(const struct multiply *run)
{
    _Alignas(DDP_CACHE_LINE) char unpacked[UNPACKED_STRIP * DDP_GEMM_PART * sizeof(float)];
    const struct ddp_gemm *g = run->gemm;
    assert(run->strip <= UNPACKED_STRIP && UNPACKED_COLUMNS % run->strip == 0);
    const int64_t size = g->bf16 ? 2 : 4, some = g->transpose_b ? run->depths : PACK_DEPTHS;
    const int64_t wide = g->transpose_b ? run->strip : UNPACKED_COLUMNS;
    for (int64_t depth = 0; depth < run->depths; depth += some)
        for (int64_t first = 0; first < run->columns; first += wide) {
            const int64_t columns = at_most(run->columns - first, wide);
            const int64_t depths = at_most(run->depths - depth, some);
            const int64_t step = g->transpose_b ? depths : columns;
            const int64_t column = run->column + first, from = run->depth + depth;
            for (int64_t i = 0; i < (g->transpose_b ? columns : depths); i++)
                ddp_gemm_unpack(
                    g, g->transpose_b ? (column + i) * g->k + from : (from + i) * g->n + column,
                    step, unpacked + i * step * size);
            for (int64_t j = 0; j < columns; j += run->strip) {
                const int64_t here = at_most(columns - j, run->strip);
                const int64_t width = round_up(here, run->set->lanes);
                const struct ddp_gemm_lines lines = {.from = unpacked + j * size,
                                                     .step = step,
                                                     .along = !g->transpose_b,
                                                     .lines = here,
                                                     .depths = depths,
                                                     .readable = columns - j,
                                                     .form = run->b_form};
                run->set->pack(run->panel + (first + j) * run->packed +
                                   packed_at(run, depth, width),
                               width, &lines);
            }
        }
}

/* How many panels the rows of A are cut into. */
static int64_t row_panels(const struct multiply *run)
{
    const struct ddp_gemm *g = run->gemm;
    const bool sets = !g->transpose_a && g->lda % 1024 == 0; /* of the cache, shared by rows */
    const int64_t most = run->a_in_place && sets ? at_most(run->most_rows, 7) : run->most_rows;
    return (run->rows + most - 1) / most;
}

static void run_panel(const struct multiply *run)
{
    const struct ddp_gemm *g = run->gemm;
    const int64_t panels = row_panels(run);
    const bool copies = run->b_copied && (!run->a_in_place || g->transpose_a);
    const int64_t group = run->a_whole ? panels : g->transpose_a ? ROW_PANELS : 1;
    const int64_t left = round_up(run->set->rows, run->set->lanes) * run->packed;
    if (g->b_block)
        pack_blocks(run);
    else
        pack_panel(run);
    int64_t row = run->row;
    for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t rows = run->rows / panels + (panel < run->rows % panels);
        if (!run->a_in_place && !run->a_whole && panel % group == 0)
            pack_rows(run, row, panel, panels, at_most(panels - panel, group));
        run_rows(run, run->left + panel % group * left, row, rows, panel == 0 && copies);
        row += rows;
    }
}

static void choose(struct multiply *run, enum ddp_isa isa)
{
    const struct ddp_gemm *g = run->gemm;
    run->set = ddp_gemm_set(isa);
    run->a_form = run->b_form = DDP_GEMM_F32;
    if (g->b_bf16)
        run->b_form = DDP_GEMM_WIDENED;
    if (g->bf16) {
        const struct ddp_gemm_set *pairs = ddp_gemm_pairs_set(isa);
        run->set = pairs ? pairs : run->set;
        run->a_form = run->b_form = pairs ? DDP_GEMM_PAIRS : DDP_GEMM_SWAPPED;
    }
    const int64_t high = run->set->rows, wide = run->set->wide;
    const bool is_wide = wide > 0 && run->rows <= WIDE_PANELS * wide &&
                         (run->rows + wide - 1) / wide == (run->rows + high - 1) / high;
    run->strip = run->set->lanes * (run->set->vectors + is_wide);
    run->most_rows = is_wide ? wide : high;
}

/* Few rows of A are packed whole for each part of K, and panels of B are narrow: each is used while
 * it is in the first caches. */
static void run_whole_rows(struct multiply *run, const struct ddp_gemm_tile *tile, int64_t most)
{
    for (int64_t depth = 0; depth < run->gemm->k; depth += run->depths) {
        begin_part(run, depth);
        const int64_t panels = row_panels(run);
        if (!run->a_in_place)
            pack_rows(run, run->row, 0, panels, panels);
        for (int64_t j = 0; j < tile->columns; j += run->columns) {
            run->column = tile->column + j;
            run->columns = at_most(tile->columns - j, most);
            run_panel(run);
        }
    }
}

static void run_tile(struct multiply *run, const struct ddp_gemm_tile *tile, int64_t most)
{
    for (int64_t j = 0; j < tile->columns; j += run->columns) {
        run->column = tile->column + j;
        run->columns = at_most(tile->columns - j, most);
        for (int64_t depth = 0; depth < run->gemm->k; depth += run->depths) {
            begin_part(run, depth);
            run_panel(run);
        }
    }
}

/* --- few rows --------------------------------------------------------------------------------- */

/* C of few rows, or, with `swapped` operands, of one column. */
struct vector {
    const struct ddp_gemm *gemm;
    const struct ddp_gemm_set *set;
    const void *x, *b;
    bool along;
    enum ddp_gemm_form form;
    int64_t rows, x_row, x_step, b_step, n, c_row, c_step;
    float *c;
};

/* Of x, as an operand is packed: zeros in rows that do not exist, and behind an odd K. */
static void pack_x(const struct vector *v, int64_t rows, int64_t depth, int64_t depths, float *to)
{
    const bool bf16 = v->gemm->bf16;
    const int64_t packed = ddp_gemm_packed(depths, v->form);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < packed; l++) {
            const int64_t from = bf16 ? l ^ 1 : l;
            const int64_t at = i * v->x_row + (depth + from) * v->x_step;
            if (i >= v->rows || from >= depths)
                to[i * packed + l] = 0;
            else if (bf16)
                to[i * packed + l] = ddp_bf16_to_f32(((const uint16_t *)v->x)[at]);
            else
                to[i * packed + l] = ((const float *)v->x)[at];
        }
}

/* Columns [first, first + columns). */
static void run_vector(const struct vector *v, int64_t first, int64_t columns)
{
    float x[DDP_GEMM_ROWS * 2 * DDP_GEMM_PART], sums[ROW_SUMS];
    const int64_t k = v->gemm->k, whole = v->rows > 1 ? round_up(v->rows, DDP_GEMM_FEW) : 1;
    for (int64_t depth = 0, depths; depth < k; depth += depths) {
        depths = depths_of_part(v->gemm, k - depth);
        pack_x(v, whole, depth, depths, x);
        const int64_t at = v->along ? depth * v->b_step + first : first * v->b_step + depth;
        const struct ddp_gemm_row row = {
            .x = x,
            .rows = whole,
            .columns = {.from = element_of(v->b, v->form != DDP_GEMM_F32, at),
                        .step = v->b_step,
                        .along = v->along,
                        .lines = columns,
                        .depths = depths,
                        .readable = v->n - first,
                        .form = v->form},
            .sums = sums,
        };
        v->set->row(&row);
        const bool add = depth > 0 || v->gemm->beta != 0;
        for (int64_t i = 0; i < v->rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                float *c = v->c + i * v->c_row + (first + j) * v->c_step;
                *c = add ? *c + sums[i * columns + j] : sums[i * columns + j];
            }
    }
}

static void run_row(const struct ddp_gemm *g, const struct ddp_gemm_tile *tile,
                    const struct ddp_gemm_set *set)
{
    struct vector v = {.gemm = g, .set = set, .c = g->c, .rows = 1};
    v.form = g->bf16 ? DDP_GEMM_SWAPPED : g->b_bf16 ? DDP_GEMM_WIDENED : DDP_GEMM_F32;
    const bool column = g->n == 1 && !g->b_bf16 && g->m != 1;
    int64_t some = ROW_COLUMNS;
    if (column) {
        v.x = g->b;
        v.x_step = g->transpose_b ? 1 : g->ldb;
        v.b = g->a;
        v.b_step = g->lda;
        v.along = g->transpose_a;
        v.n = g->m;
        v.c_step = g->ldc;
    } else {
        v.rows = tile->rows;
        v.x_row = g->transpose_a ? 1 : g->lda;
        v.x_step = g->transpose_a ? g->lda : 1;
        v.x = element_of(g->a, g->bf16, tile->row * v.x_row);
        v.b = g->b;
        v.b_step = g->ldb;
        v.along = !g->transpose_b;
        v.n = g->n;
        v.c_row = g->ldc;
        v.c_step = 1;
        v.c = g->c + tile->row * g->ldc;
        some = at_most(some, ROW_SUMS / round_up(v.rows, DDP_GEMM_FEW) / 64 * 64);
    }
    const int64_t begin = column ? tile->row : tile->column;
    const int64_t end = begin + (column ? tile->rows : tile->columns);
    const unsigned flushing = begin_flushing(g->bf16);
    for (int64_t first = begin; first < end; first += some)
        run_vector(&v, first, at_most(end - first, some));
    end_flushing(g->bf16, flushing);
    if (g->epilogue)
        g->epilogue(g->epilogue_arg, tile->row, tile->rows, tile->column, tile->columns);
}

/* Whether memory bounds the product. */
static bool is_row(const struct ddp_gemm *g, const struct ddp_gemm_set *set)
{
    if (g->b_block)
        return false;
    const int few = g->bf16 ? set->few / 2 : set->few;
    return g->m == 1 || (g->n == 1 && !g->b_bf16) ||
           (g->m <= few && !g->transpose_b && g->k >= FEW_ELEMENTS / g->n);
}

bool ddp_gemm_tile_run(const struct ddp_gemm *gemm, const struct ddp_gemm_tile *tile,
                       enum ddp_isa isa)
{
    struct multiply run = {.gemm = gemm, .row = tile->row, .rows = tile->rows};
    choose(&run, isa);
    if (is_row(gemm, run.set)) {
        run_row(gemm, tile, ddp_gemm_set(isa));
        return true;
    }
    _Alignas(DDP_CACHE_LINE) float left[ROW_PANELS * 16 * 2 * DDP_GEMM_PART], small[SMALL_PANEL];
    begin_part(&run, 0); /* no part has more depths */
    run.a_in_place = run.a_form == DDP_GEMM_F32 && tile->columns <= IN_PLACE_COLUMNS * run.strip;
    run.b_copied = tile->rows <= COPIED_ROWS || gemm->k <= COPIED_ELEMENTS / gemm->n;
    run.b_in_place = tile->rows <= IN_PLACE_PANELS * run.most_rows;
    run.a_whole = gemm->transpose_b && tile->rows <= WHOLE_ROWS;
    const int64_t wide = run.a_whole ? run.strip : PANEL / run.packed / run.strip * run.strip;
    const int64_t most = at_most(round_up(tile->columns, run.strip), wide);
    const int64_t rows = run.a_whole && !run.a_in_place
                             ? row_panels(&run) * round_up(run.set->rows, run.set->lanes)
                             : 0;
    void (*const multiply)(struct multiply *, const struct ddp_gemm_tile *, int64_t) =
        run.a_whole ? run_whole_rows : run_tile;
    run.left = left;
    run.panel = small;
    if ((most + rows) * run.packed <= SMALL_PANEL) {
        if (rows > 0)
            run.left = small + most * run.packed;
        multiply(&run, tile, most);
        return true;
    }
    const size_t bytes = (size_t)((most + rows) * run.packed) * sizeof(float);
    run.panel = aligned_alloc(DDP_CACHE_LINE, ddp_align_up(bytes, DDP_CACHE_LINE));
    if (!run.panel)
        return false;
    if (rows > 0)
        run.left = run.panel + most * run.packed;
    multiply(&run, tile, most);
    free(run.panel);
    return true;
}
