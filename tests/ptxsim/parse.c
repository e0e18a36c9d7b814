/* SPDX-License-Identifier: MIT
 *
 * Reads a kernel as nvcc writes it: parameters, variables in shared memory, registers, labels, and
 * where in the source an instruction comes from. decode.c reads the instructions. */
#include "config.h"

#include "tests/ptxsim/parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ptx_specials[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                    "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                    "%nctaid.y", "%nctaid.z", "%laneid",  NULL};

void ptx_die(const struct ptx_parser *p, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "ptxsim: %s, line %d of the PTX: ", p->kernel ? p->kernel->name : "a module",
            p->line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n  in: %s\n", p->statement);
    abort();
}

void *ptx_grown(void *array, int count, size_t bytes)
{
    if (count & (count - 1))
        return array;
    void *grown = realloc(array, bytes * 2 * (size_t)(count ? count : 1));
    if (!grown)
        abort();
    return grown;
}

struct ptx_type ptx_type_of(const struct ptx_parser *p, const char *name)
{
    if (strcmp(name, "pred") == 0)
        return (struct ptx_type){'p', 0};
    if (strcmp(name, "bf16x2") == 0)
        return (struct ptx_type){'h', 32};
    if (strcmp(name, "f16x2") == 0)
        return (struct ptx_type){'g', 32};
    char *end;
    const unsigned long bits = strtoul(name + 1, &end, 10);
    if (!strchr("busf", *name) || *end ||
        !(bits == 16 || bits == 32 || bits == 64 || (*name != 'f' && bits == 8)))
        ptx_die(p, "the type \"%s\" is not known", name);
    return (struct ptx_type){*name, (uint8_t)bits};
}

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    return text;
}

int ptx_split(const struct ptx_parser *p, char *text, char **parts, int most)
{
    int count = 0, depth = 0;
    text = trimmed(text);
    if (!*text)
        return 0;
    for (char *start = text;; text++) {
        depth += *text && strchr("[{(", *text) ? 1 : *text && strchr("]})", *text) ? -1 : 0;
        if (*text && (*text != ',' || depth))
            continue;
        if (count == most)
            ptx_die(p, "more than %d parts", most);
        const bool last = !*text;
        *text = 0;
        parts[count++] = trimmed(start);
        if (last)
            return count;
        start = text + 1;
    }
}

/* --- registers --- */

static uint32_t register_bytes(uint8_t bytes)
{
    return bytes ? PTX_WARP * (uint32_t)bytes : 32; /* predicates are aligned as the others are */
}

uint32_t ptx_take_register(struct ptx_parser *p, uint8_t bytes)
{
    const uint32_t at = p->kernel->register_bytes;
    p->kernel->register_bytes += register_bytes(bytes);
    return at;
}

/* ".reg .b32 %r<12>" */
static void declare_registers(struct ptx_parser *p, char *text)
{
    char type[16], *list = text + strlen(".reg");
    int taken = 0;
    if (sscanf(list, " .%15s %n", type, &taken) != 1)
        ptx_die(p, "registers without a type");
    const struct ptx_type of = ptx_type_of(p, type);
    char *name[16];
    const int names = ptx_split(p, list + taken, name, 16);
    for (int i = 0; i < names; i++) {
        p->range = ptx_grown(p->range, p->ranges, sizeof *p->range);
        struct ptx_range *range = &p->range[p->ranges++];
        char *many = strchr(name[i], '<');
        range->count = many ? atoi(many + 1) : -1;
        if (many)
            *many = 0;
        snprintf(range->name, sizeof range->name, "%s", name[i]);
        range->bytes = of.kind == 'p' ? 0 : of.bits == 64 ? 8 : 4;
        range->at = p->kernel->register_bytes;
        p->kernel->register_bytes +=
            (uint32_t)(many ? range->count : 1) * register_bytes(range->bytes);
    }
}

bool ptx_find_register(const struct ptx_parser *p, const char *name, struct ptx_operand *o)
{
    size_t letters = strlen(name);
    while (letters && isdigit((unsigned char)name[letters - 1]))
        letters--;
    for (int i = p->ranges - 1; i >= 0; i--) {
        const struct ptx_range *range = &p->range[i];
        const int number = range->count < 0 ? 0 : atoi(name + letters);
        if (range->count < 0
                ? strcmp(range->name, name) != 0
                : strlen(range->name) != letters || !name[letters] ||
                      strncmp(range->name, name, letters) != 0 || number >= range->count)
            continue;
        o->at = range->at + (uint32_t)number * register_bytes(range->bytes);
        o->bytes = range->bytes;
        return true;
    }
    return false;
}

/* --- variables and parameters --- */

static void add_symbol(struct ptx_parser *p, const char *name, enum ptx_space space, uint64_t at)
{
    p->symbol = ptx_grown(p->symbol, p->symbols, sizeof *p->symbol);
    struct ptx_symbol *symbol = &p->symbol[p->symbols++];
    snprintf(symbol->name, sizeof symbol->name, "%s", name);
    symbol->space = space;
    symbol->at = at;
}

/* ".align 8 .b8 name[12]" without the space, and what is like it: appended to `bytes` in use. */
static void add_variable(struct ptx_parser *p, char *text, enum ptx_space space, uint32_t *bytes)
{
    struct ptx_type type = {0};
    uint32_t align = 0, size = 0, count = 1;
    char *rest, *name = NULL;
    for (char *word = strtok_r(text, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
        if (strcmp(word, ".align") == 0)
            align = (uint32_t)atoi(strtok_r(NULL, " \t\n", &rest));
        else if (*word == '.')
            type = ptx_type_of(p, word + 1);
        else
            name = word;
    if (!name || !type.bits)
        ptx_die(p, "a variable without a name or a type");
    char *bracket = strchr(name, '[');
    if (bracket) {
        count = (uint32_t)strtoul(bracket + 1, NULL, 10); /* []: dynamic, of no size */
        *bracket = 0;
    }
    size = type.bits / 8 * count;
    align = align ? align : type.bits / 8;
    *bytes = (*bytes + align - 1) / align * align;
    add_symbol(p, name, space, *bytes);
    if (space == PTX_PARAM) {
        struct ptx_kernel *k = p->kernel;
        if (k->parameter_count == PTX_MAX_PARAMETERS)
            ptx_die(p, "more than %d parameters", PTX_MAX_PARAMETERS);
        k->parameter[k->parameter_count].at = *bytes;
        k->parameter[k->parameter_count++].bytes = size;
    }
    *bytes += size;
}

/* --- a kernel --- */

/* ".loc 2 42 9, function_name $L__info_string0, inlined_at 1 84 13" */
static void locate(struct ptx_parser *p, const char *text)
{
    const char *caller = strstr(text, "inlined_at");
    p->caller_file = p->caller_line = 0;
    if (sscanf(text, ".loc %d %d", &p->file, &p->source_line) != 2 ||
        (caller && sscanf(caller, "inlined_at %d %d", &p->caller_file, &p->caller_line) != 2) ||
        p->file < 0 || p->file >= PTX_MAX_FILES || p->caller_file < 0 ||
        p->caller_file >= PTX_MAX_FILES)
        ptx_die(p, "a place in the source");
}

static void statement(struct ptx_parser *p, char *text)
{
    if (strncmp(text, ".reg", 4) == 0)
        declare_registers(p, text);
    else if (strncmp(text, ".shared", 7) == 0)
        add_variable(p, text + 7, PTX_SHARED, &p->kernel->shared_bytes);
    else if (strncmp(text, ".pragma", 7) != 0)
        ptx_decode(p, text);
}

static void add_label(struct ptx_parser *p, const char *name, size_t length)
{
    p->label = ptx_grown(p->label, p->labels, sizeof *p->label);
    struct ptx_label *label = &p->label[p->labels++];
    snprintf(label->name, sizeof label->name, "%.*s", (int)length, name);
    label->at = p->kernel->count;
}

/* Takes what begins at `text`: a label, a line that says where, or a statement. Returns its end. */
static const char *take(struct ptx_parser *p, const char *text)
{
    const size_t letters = strspn(text, "$%_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789");
    const bool place = strncmp(text, ".loc", 4) == 0;
    const size_t length = text[letters] == ':' ? letters : strcspn(text, place ? "\n" : ";");
    if (length >= sizeof p->statement)
        ptx_die(p, "a statement of %zu letters", length);
    snprintf(p->statement, sizeof p->statement, "%.*s", (int)length, text);
    if (text[letters] == ':') {
        add_label(p, text, letters);
    } else if (place) {
        locate(p, p->statement);
    } else {
        char copy[sizeof p->statement];
        memcpy(copy, p->statement, sizeof copy);
        statement(p, copy);
    }
    for (size_t i = 0; i < length; i++)
        p->line += text[i] == '\n';
    return text + length + (text[length] && text[length] != '\n');
}

static const char *skip_blanks(struct ptx_parser *p, const char *text)
{
    for (;;) {
        if (text[0] == '/' && text[1] == '/')
            text += strcspn(text, "\n");
        else if (isspace((unsigned char)*text))
            p->line += *text++ == '\n';
        else
            return text;
    }
}

static void body(struct ptx_parser *p, const char *text)
{
    int depth = 0;
    while (*(text = skip_blanks(p, text)) != '}' || --depth >= 0)
        if (!*text)
            ptx_die(p, "the text ends in a kernel");
        else if (*text == '{' || *text == '}')
            depth += *text++ == '{';
        else
            text = take(p, text);
    for (int i = 0; i < p->jumps; i++) {
        int label = 0;
        while (label < p->labels && strcmp(p->label[label].name, p->jump[i].name) != 0)
            label++;
        if (label == p->labels)
            ptx_die(p, "there is no label %s", p->jump[i].name);
        p->kernel->code[p->jump[i].at].target = p->label[label].at;
    }
}

static void parameters(struct ptx_parser *p, const char *from, size_t length)
{
    char *text = strndup(from, length), *part[PTX_MAX_PARAMETERS];
    if (!text)
        abort();
    const int parts = ptx_split(p, text, part, PTX_MAX_PARAMETERS);
    for (int i = 0; i < parts; i++) {
        snprintf(p->statement, sizeof p->statement, "%s", part[i]);
        add_variable(p, part[i] + strlen(".param"), PTX_PARAM, &p->kernel->parameter_bytes);
    }
    free(text);
}

/* What stands outside of kernels: files, and variables that all of them may use. */
static void module_line(struct ptx_parser *p, const char *text)
{
    int number;
    char name[512];
    if (strncmp(text, ".file", 5) == 0) {
        char line[600];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
        if (sscanf(line, ".file %d \"%511[^\"]\"", &number, name) != 2)
            ptx_die(p, "%s", line);
        if (number < 0 || number >= PTX_MAX_FILES)
            ptx_die(p, "more than %d files", PTX_MAX_FILES);
        if (!p->module->file[number])
            p->module->file[number] = strdup(name);
        return;
    }
    text += strncmp(text, ".extern ", 8) == 0 ? 8 : 0;
    if (strncmp(text, ".shared", 7) == 0) {
        snprintf(p->statement, sizeof p->statement, "%.*s", (int)strcspn(text, ";"), text);
        char copy[sizeof p->statement];
        memcpy(copy, p->statement, sizeof copy);
        add_variable(p, copy + 7, PTX_SHARED, &p->kernel->shared_bytes);
    }
}

/* The immediates stand behind the registers, as each warp finds them: what decode.c counted. */
static void place_constants(struct ptx_parser *p)
{
    struct ptx_kernel *k = p->kernel;
    k->constants_at = k->register_bytes;
    k->register_bytes += (uint32_t)p->constants * register_bytes(8);
    k->constants = calloc(1, (size_t)p->constants * register_bytes(8) + 1);
    if (!k->constants)
        abort();
    for (int i = 0; i < p->constants; i++) {
        char *at = k->constants + (size_t)i * register_bytes(8);
        for (int l = 0; l < PTX_WARP; l++)
            if (p->constant[i].bytes == 8)
                ((uint64_t *)(void *)at)[l] = p->constant[i].value;
            else
                ((uint32_t *)(void *)at)[l] = (uint32_t)p->constant[i].value;
    }
    for (int i = 0; i < k->count; i++)
        for (int o = 0; o < PTX_MAX_OPERANDS; o++)
            if (k->code[i].o[o].at & PTX_CONSTANT)
                k->code[i].o[o].at =
                    k->constants_at + (k->code[i].o[o].at & ~PTX_CONSTANT) * register_bytes(8);
}

/* The `.entry NAME` in a text: where its name stands, NULL if there is none. */
static const char *find_entry(const char *text, const char *name)
{
    const size_t length = strlen(name);
    while ((text = strstr(text, ".entry ")) != NULL) {
        text += strlen(".entry ");
        if (strncmp(text, name, length) == 0 && strchr("( \n\t", text[length]))
            return text;
    }
    return NULL;
}

struct ptx_kernel *ptx_kernel_parse(struct ptx_module *module, const char *name)
{
    struct ptx_parser p = {.module = module, .line = 1};
    const char *entry = find_entry(module->text, name);
    struct ptx_kernel *k = p.kernel = calloc(1, sizeof *k);
    if (!k || !(k->name = strdup(name)))
        abort();
    k->module = module;
    k->shared_bytes = PTX_SHARED_START;
    k->grain = 4;
    for (const char *line = module->text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        module_line(&p, line + strspn(line, " \t"));
    }
    const char *open = entry ? strchr(entry, '(') : NULL,
               *brace = entry ? strchr(entry, '{') : NULL;
    if (!brace)
        ptx_die(&p, "there is no such kernel");
    if (open && open < brace)
        parameters(&p, open + 1, strcspn(open, ")") - 1);
    const char *most = strstr(entry, ".maxntid ");
    if (most && most < brace)
        k->max_threads = atoi(most + strlen(".maxntid ")); /* blocks have one dimension */
    for (const char *at = module->text; at < brace; at++)
        p.line += *at == '\n';
    body(&p, brace + 1);
    place_constants(&p);
    k->traffic = calloc((size_t)k->count + 1, sizeof *k->traffic);
    if (!k->traffic)
        abort();
    free(p.range);
    free(p.symbol);
    free(p.label);
    free(p.jump);
    free(p.constant);
    return k;
}

void ptx_kernel_free(struct ptx_kernel *kernel)
{
    for (int i = 0; i < kernel->count; i++)
        free((char *)(uintptr_t)kernel->code[i].name);
    free(kernel->code);
    free(kernel->constants);
    free(kernel->traffic);
    free(kernel->name);
    free(kernel);
}

void ptx_kernel_names(const char *text, void (*each)(const char *name))
{
    char name[512];
    while ((text = strstr(text, ".entry ")) != NULL) {
        text += strlen(".entry ");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "( \t\n"), text);
        each(name);
    }
}
