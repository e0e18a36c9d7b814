#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the fuzz targets with clang's libFuzzer and the sanitizers, and runs each for some seconds.
# usage: run.sh [SECONDS [TARGET ...]]   in the build directory, with srcdir in the environment.
# What makes a target fail is kept in fuzz-found/. Exit status: 0 nothing found, 1 found, 77 no clang with libFuzzer.
set -eu
seconds=${1:-20}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- idx safetensors options npy zip tokens image tokenizer llmc hf_config hf_llama gguf peft index bnb checkpoint description text record table link place choices plan_text run_log history trace yaml jinja wordpiece
srcdir=${srcdir:-.}
clang=${FUZZ_CC:-clang}
flags="-std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -I$srcdir/src -I$srcdir"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n); int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { (void)d; (void)n; return 0; }' >"$work/probe.c"
# shellcheck disable=SC2086 # flags are words
if ! "$clang" $flags "$work/probe.c" -o "$work/probe" >"$work/log" 2>&1; then
    echo "skipped: $clang cannot build with -fsanitize=fuzzer (Debian: clang and libclang-rt-14-dev)"
    exit 77
fi

sources_of() {
    core="core/cgroup.c core/clock.c core/hash.c core/log.c core/memory.c core/status.c core/terminal.c core/text.c"
    case $1 in
    link) echo "$core ../launcher/link/connection.c ../launcher/link/frame.c ../launcher/link/munge.c ../launcher/link/proof.c" ;;
    idx) echo "$core data/byte_source.c data/idx_file.c" ;;
    safetensors) echo "$core core/input_file.c core/json.c core/parse.c weights/safetensors.c" ;;
    npy) echo "$core core/input_file.c data/blob.c data/npy_file.c" ;;
    zip) echo "$core core/input_file.c data/blob.c data/zip_file.c" ;;
    tokens) echo "$core core/atomic_file.c core/directory.c core/input_file.c core/write.c data/blob.c data/byte_source.c data/npy_file.c data/text_file.c data/token_file.c core/json.c core/parse.c" ;;
    record) echo "$core core/json.c core/parse.c data/byte_source.c data/line_reader.c data/record.c data/preference.c data/alpaca.c data/columns.c data/question.c" ;;
    table) echo "$core core/input_file.c core/json.c core/parse.c core/portable_math.c core/rng.c data/byte_source.c data/csv.c data/data_names.c data/dataset_read.c data/describe.c data/normalize.c data/split.c data/table.c data/table_guess.c data/table_schema.c data/table_text.c data/text_file.c" ;;
    tokenizer | gguf)
        echo "$core core/gguf.c core/input_file.c core/json.c core/parse.c core/pool.c core/futex.c core/rounding.c core/thread.c core/trace.c core/write.c"
        for part in added alphabet bpe decode encode encode_long encode_many encoder gguf_cuts gguf_read nfc read_steps regex tokenizer tokenizer_open vocabulary; do
            echo "data/text/$part.c"
        done
        [ "$1" = tokenizer ] || echo "core/blocks.c weights/bnb.c weights/gguf_adapters.c weights/gguf_load.c weights/gguf_gpt2.c weights/gpt2_tensors.c weights/gguf_config.c weights/gguf_blocks.c weights/gguf_names.c weights/hf_llama_tensors.c weights/hf_keys.c weights/hf_llama_config.c weights/hf_llama_rope.c weights/hf_llama_load.c weights/safetensors.c weights/safetensors_index.c model/lora.c core/portable_math.c"
        ;;
    wordpiece) echo "$core core/input_file.c core/json.c core/parse.c core/write.c data/text/nfc.c data/text/vocabulary.c data/text/wordpiece.c data/text/wordpiece_open.c" ;;
    text) echo "$core core/json.c core/parse.c data/byte_source.c data/text_file.c" ;;
    image) echo "$core core/input_file.c data/blob.c data/image_bmp.c data/image_exif.c data/image_file.c data/image_gif.c data/image_jpeg.c data/image_png.c data/image_resize.c data/image_tiff.c data/image_webp.c" ;;
    llmc) echo "$core weights/gpt2_tensors.c weights/llmc_header.c" ;;
    hf_config) echo "$core core/atomic_file.c core/directory.c core/input_file.c core/parse.c core/write.c weights/hf_config.c weights/hf_keys.c core/json.c" ;;
    hf_llama) echo "$core core/input_file.c core/json.c core/parse.c weights/hf_edit.c weights/hf_keys.c weights/hf_llama_config.c weights/hf_llama_rope.c weights/hf_llama_text.c core/portable_math.c" ;;
    peft) echo "$core core/input_file.c core/json.c core/parse.c core/write.c model/lora.c weights/hf_keys.c weights/peft_config.c" ;;
    bnb) echo "$core core/blocks.c core/input_file.c core/json.c core/parse.c weights/bnb.c weights/hf_keys.c weights/safetensors.c weights/safetensors_index.c" ;;
    index) echo "$core core/input_file.c core/json.c core/parse.c weights/safetensors.c weights/safetensors_index.c" ;;
    checkpoint) echo "$core checkpoint/state.c core/json.c core/parse.c" ;;
    description) echo "$core core/options.c core/parse.c model/describe.c" ;;
    yaml) echo "$core plan/yaml.c" ;;
    jinja)
        echo "$core data/text/nfc.c data/text/jinja.c"
        for part in filters lex members parse print run strings value; do
            echo "data/text/jinja_$part.c"
        done
        ;;
    options) echo "$core core/options.c core/parse.c" ;;
    choices) echo "$core core/crc32c.c ../kernels/cuda/choices.c" ;;
    place) echo "core/parse.c ../launcher/place_text.c" ;;
    history) echo "$core checkpoint/state.c core/input_file.c core/json.c core/parse.c report/sha256.c train/history.c" ;;
    plan_text) echo "$core core/input_file.c core/json.c core/parse.c ../reporter/plan_text.c ../reporter/run_facts.c ../reporter/run_log.c" ;;
    run_log) echo "$core core/input_file.c core/json.c core/parse.c ../reporter/run_facts.c ../reporter/run_log.c ../reporter/series.c" ;;
    trace) echo "$core core/input_file.c core/json.c core/parse.c ../reporter/trace_file.c" ;;
    *) echo "no fuzz target named $1" >&2; exit 2 ;;
    esac
}

failed=0
python3 "$srcdir/tests/lib/corpus.py" "$work/corpora"
image_libraries=$(sed -n 's/^IMAGE_LIBS = //p' Makefile)
for target in "$@"; do
    sources=$(find "$srcdir/tests" -name "fuzz_$target.c")
    for file in $(sources_of "$target"); do
        sources="$sources $srcdir/src/$file"
    done
    # shellcheck disable=SC2086
    "$clang" $flags $sources -lz -ljansson $image_libraries -lpcre2-8 -lutf8proc -lyaml -lnettle -o "$work/$target"
    mkdir "$work/corpus-$target"
    mkdir -p fuzz-found
    echo "fuzzing $target for $seconds s"
    if "$work/$target" -close_fd_mask=2 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="fuzz-found/$target-" -print_final_stats=1 "$work/corpus-$target" \
        "$work/corpora/$target" >"$work/log" 2>&1; then
        grep -E 'number_of_executed_units|peak_rss' "$work/log" || true
    else
        tail -n 60 "$work/log"
        failed=1
    fi
done
rmdir fuzz-found 2>/dev/null || true
exit $failed
