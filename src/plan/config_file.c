/* SPDX-License-Identifier: MIT
 *
 * See config_file.h. Each entry becomes an argument of a command line, so that it means the same
 * there and here. */
#include "config.h"

#include "plan/config_file.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_BYTES 65536

/* What axolotl, TRL and LLaMA-Factory call an option that has another name here. */
static const struct {
    const char *theirs, *ours;
} known[] = {
    {"adam_beta1", "optimizer: adamw,beta1=B"},
    {"adam_beta2", "optimizer: adamw,beta2=B"},
    {"adam_epsilon", "optimizer: adamw,eps=E"},
    {"adapter", "lora: r=R,alpha=A"},
    {"base_model", "load"},
    {"beta", "objective: NAME,beta=X"},
    {"bf16", "dtype: bf16"},
    {"cutoff_len", "seq-len"},
    {"dataset_name", "data"},
    {"dataset_text_field", "columns: text=NAME"},
    {"datasets", "data"},
    {"deepspeed", "the options of ddprun(1)"},
    {"eval_dataset", "val"},
    {"field_messages", "columns: messages=NAME"},
    {"fsdp", "the options of ddprun(1)"},
    {"gradient_accumulation_steps", "acc-steps"},
    {"gradient_checkpointing", "recompute"},
    {"learning_rate", "lr"},
    {"logging_steps", "log-every"},
    {"lora_alpha", "lora: r=R,alpha=A"},
    {"lora_dropout", "lora: r=R,dropout=P"},
    {"lora_r", "lora: r=R,alpha=A"},
    {"lora_rank", "lora: r=R,alpha=A"},
    {"lora_target", "lora: targets=all-linear"},
    {"lora_target_linear", "lora: targets=all-linear"},
    {"lora_target_modules", "lora: targets=q_proj,v_proj"},
    {"loss_type", "objective"},
    {"lr_scheduler", "schedule"},
    {"lr_scheduler_type", "schedule"},
    {"max_grad_norm", "clip-grad-norm"},
    {"max_length", "seq-len"},
    {"max_steps", "steps"},
    {"micro_batch_size", "batch-size"},
    {"model_name_or_path", "load"},
    {"num_epochs", "epochs"},
    {"num_train_epochs", "epochs"},
    {"optim", "optimizer"},
    {"output_dir", "checkpoint, save or export"},
    {"per_device_train_batch_size", "batch-size"},
    {"pref_beta", "objective: NAME,beta=X"},
    {"pref_loss", "objective"},
    {"report_to", "log or tensorboard"},
    {"resume_from_checkpoint", "resume or resume-from"},
    {"rl", "objective"},
    {"rl_beta", "objective: NAME,beta=X"},
    {"sample_packing", "packing"},
    {"save_steps", "checkpoint-every"},
    {"save_total_limit", "keep"},
    {"sequence_len", "seq-len"},
    {"use_peft", "lora: r=R,alpha=A"},
    {"val_set_size", "val-split"},
    {"val_size", "val-split"},
    {"warmup_ratio", "warmup-steps"},
};

static bool is_options(const char *path)
{
    return ddp_text_ends_with(path, ".yaml") || ddp_text_ends_with(path, ".yml");
}

/* Is the name among those with '|' between? */
static bool has(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = names; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, name, length) == 0 && (at[length] == '|' || !at[length]))
            return true;
    }
    return false;
}

/* Was the row given, or one that excludes it or that it excludes? */
static bool yields(const struct ddp_options_given *won, const struct ddp_option *row)
{
    const struct ddp_option *table = ddp_train_option_table();
    for (const struct ddp_option *other = table; other->name; other++)
        if (ddp_options_given(table, won, other->name) &&
            (other == row || has(other->excludes, row->name) || has(row->excludes, other->name)))
            return true;
    return false;
}

/* Makes a message of something that has failed name the line. */
static enum ddp_status fail_at(const char *path, const struct ddp_yaml_entry *entry,
                               enum ddp_status status, const char *what)
{
    return ddp_fail(status, "%s: line %d: %s", path, entry->line, what);
}

/* An option that does not exist, or no longer does: what the command line says of it. */
static enum ddp_status unknown(struct ddp_train_options *options, const char *path,
                               const struct ddp_yaml_entry *entry)
{
    char said[512] = "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].theirs, entry->name) == 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: line %d: %s is what others call it: here it is %s", path,
                            entry->line, entry->name, known[i].ours);
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    (void)ddp_options_set(ddp_train_option_table(), options, &options->given, entry->name, "");
    ddp_log_exchange(before);
    return fail_at(path, entry, DDP_ERR_INVALID, said);
}

/* Is it a plain true or false? */
static bool is_switch(const struct ddp_yaml_entry *entry, bool *on)
{
    *on = entry->plain && strcasecmp(entry->value, "true") == 0;
    return *on || (entry->plain && strcasecmp(entry->value, "false") == 0);
}

/* The argument that means the same as the entry.
 *   argument [out]  freed with free(); NULL: none, it says what is so anyway */
static enum ddp_status make_argument(const char *path, const struct ddp_yaml_entry *entry,
                                     const struct ddp_option *row, char **argument)
{
    const bool valued = row->argument != NULL;
    const bool null = entry->plain && (!*entry->value || !strcmp(entry->value, "~") ||
                                       strcasecmp(entry->value, "null") == 0);
    bool on = false;
    const bool is_bool = is_switch(entry, &on);
    int printed = 0;
    *argument = NULL;
    if (null)
        return fail_at(path, entry, DDP_ERR_INVALID, "it has no value: give one, or leave it out");
    if (!valued && !is_bool)
        return ddp_fail(DDP_ERR_INVALID, "%s: line %d: %s: must be true or false", path,
                        entry->line, entry->name);
    if (valued && is_bool)
        return ddp_fail(DDP_ERR_INVALID, "%s: line %d: %s: takes %s, not %s", path, entry->line,
                        entry->name, row->argument, entry->value);
    if (valued)
        printed = asprintf(argument, "--%s=%s", entry->name, entry->value);
    else if (on || row->negatable)
        printed = asprintf(argument, "--%s%s", on ? "" : "no-", entry->name);
    if (printed < 0) {
        *argument = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    }
    return DDP_OK;
}

/* As an argument; what is wrong is said with the line. */
static enum ddp_status parse(struct ddp_train_options *options, const char *path,
                             const struct ddp_yaml_entry *entry, char *argument)
{
    char said[1024] = "";
    char *const argv[] = {argument, argument};
    int rest;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = ddp_options_parse(ddp_train_option_table(), options,
                                                     &options->given, 2, argv, false, &rest);
    ddp_log_exchange(before);
    return status == DDP_OK ? status : fail_at(path, entry, status, said);
}

static enum ddp_status apply(struct ddp_train_options *options, const char *path,
                             const struct ddp_options_given *won,
                             const struct ddp_yaml_entry *entry, struct ddp_config_words *words)
{
    const struct ddp_option *table = ddp_train_option_table();
    const struct ddp_option *row = ddp_options_find(table, entry->name);
    char *argument = NULL;
    if (!row || row->gone)
        return unknown(options, path, entry);
    enum ddp_status status = make_argument(path, entry, row, &argument);
    if (status != DDP_OK || !argument)
        return status;
    status = ddp_array_append(&words->at, &words->count, &argument, sizeof argument);
    if (status != DDP_OK) {
        free(argument);
        return status;
    }
    if (strcmp(row->name, "config") == 0 && is_options(entry->value))
        return fail_at(path, entry, DDP_ERR_INVALID, "config: one file of options names no other");
    if (ddp_train_given(options, row->name) && !ddp_options_given(table, won, row->name))
        return ddp_fail(DDP_ERR_INVALID, "%s: line %d: %s is given twice", path, entry->line,
                        row->name);
    return yields(won, row) ? DDP_OK : parse(options, path, entry, argument);
}

enum ddp_status ddp_config_file_apply(struct ddp_train_options *options,
                                      struct ddp_config_words *words)
{
    const char *path = options->config;
    struct ddp_yaml yaml = {.count = 0};
    char *text = NULL;
    size_t bytes = 0;
    if (!path || !is_options(path))
        return DDP_OK;
    options->config = NULL;
    ddp_options_forget(ddp_train_option_table(), &options->given, "config");
    struct ddp_options_given *won = ddp_array_alloc(1, sizeof *won);
    if (!won)
        return DDP_ERR_MEMORY;
    *won = options->given;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "not a file of options", MOST_BYTES, &text, &bytes);
    if (status == DDP_OK)
        status = ddp_yaml_parse(&yaml, path, text, bytes);
    for (size_t i = 0; status == DDP_OK && i < yaml.count; i++)
        status = apply(options, path, won, &yaml.entries[i], words);
    ddp_yaml_free(&yaml);
    free(text);
    free(won);
    return status;
}

void ddp_config_words_free(struct ddp_config_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->at[i]);
    free(words->at);
    *words = (struct ddp_config_words){.count = 0};
}
