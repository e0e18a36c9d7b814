# SPDX-License-Identifier: MIT
"""GGUF files beside other programs: gguf-py, and llama.cpp in the package xllamacpp:

   gguf_live.py TOOL TRAINER FILL TOKENIZER_TOOL SOURCE WORK

Each family is filled with weights by a formula and exported. gguf-py reads the files: each tensor has the bytes of its own
quantisation, and what we read from quantised files has its values. llama.cpp answers from float32 files with our logits and
our tokens, with adapters too; and cuts texts into our tokens.
"""
import ctypes
import glob
import json
import os
import struct
import subprocess
import sys

import gguf
import numpy as np

tool, trainer, fill, tokenizer_tool, source, work = sys.argv[1:]
failed = checks = 0
V = 384
BASE = dict(vocab_size=V, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=1e4)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
MODELS = {
    "llama": dict(model_type="llama"),
    "llama3": dict(model_type="llama", head_dim=32, tie_word_embeddings=True, rope_theta=5e5, rope_scaling=LLAMA3),
    "llama_biases": dict(model_type="llama", attention_bias=True, mlp_bias=True, rope_scaling=dict(rope_type="linear", factor=2.0)),
    "qwen2": dict(model_type="qwen2", tie_word_embeddings=True, rope_theta=1e6, rms_norm_eps=1e-6),
    "qwen3": dict(model_type="qwen3", head_dim=32, rope_theta=1e6),
    "qwen3_yarn": dict(model_type="qwen3", head_dim=16, rope_theta=1e6, rope_scaling=YARN),
    "mistral": dict(model_type="mistral", head_dim=16, sliding_window=None),
    "smollm3": dict(model_type="smollm3", num_hidden_layers=4, tie_word_embeddings=True, rope_theta=5e6, no_rope_layers=[1, 1, 1, 0]),
    "phi3": dict(model_type="phi3", sliding_window=None),
    "phi3_partial": dict(model_type="phi3", sliding_window=None, partial_rotary_factor=0.5),
}
TYPES = dict(f32=0, f16=1, bf16=30, q8_0=8, q4_0=2)
PROMPT = [(31 + 17 * t + 5 * t * t) % 256 for t in range(16)]
COUNT = 64


def check(what, good, figure=""):
    global failed, checks
    checks += 1
    if not good:
        failed += 1
        print("FAIL:", what, figure)


def run(*arguments, data=None, good=True):
    done = subprocess.run(arguments, input=data, capture_output=True)
    if good and done.returncode:
        print(f"FAIL: {' '.join(map(str, arguments))}: {done.stderr.decode()}")
        sys.exit(1)
    return done.stdout


def floats(*arguments, data=None):
    return np.frombuffer(run(*arguments, data=data), np.float32)


# --- llama.cpp ---


class Batch(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


class Parameters(ctypes.Structure):  # larger than those of any version
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class LlamaCpp:
    """Some of its C functions. The places of parameters are those of one version: another one is recognised."""

    def __init__(self, path):
        p, i32 = ctypes.c_void_p, ctypes.c_int32
        self.lib = lib = ctypes.CDLL(path)
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, p)(lambda level, text, user: None)
        lib.llama_log_set(self.log, None)
        for name, result, arguments in (
                ("model_default_params", Parameters, []), ("context_default_params", Parameters, []),
                ("model_load_from_file", p, [ctypes.c_char_p, Parameters]), ("init_from_model", p, [p, Parameters]),
                ("model_get_vocab", p, [p]), ("vocab_n_tokens", i32, [p]), ("free", None, [p]), ("model_free", None, [p]),
                ("get_logits_ith", ctypes.POINTER(ctypes.c_float), [p, i32]), ("batch_init", Batch, [i32] * 3),
                ("decode", i32, [p, Batch]), ("adapter_lora_init", p, [p, ctypes.c_char_p]),
                ("set_adapters_lora", i32, [p, p, ctypes.c_size_t, p]),
                ("tokenize", i32, [p, ctypes.c_char_p, i32, ctypes.POINTER(i32), i32, ctypes.c_bool, ctypes.c_bool])):
            function = getattr(lib, "llama_" + name)
            function.restype, function.argtypes = result, arguments
        lib.llama_backend_init()
        defaults = bytes(lib.llama_context_default_params().bytes)
        self.known = struct.unpack_from("<4I", defaults, 0) == (512, 2048, 512, 1) and struct.unpack_from("<2i", defaults, 104) == (1, 1)

    def open(self, path):
        model = self.lib.llama_model_load_from_file(path.encode(), self.lib.llama_model_default_params())
        return model

    def answers(self, path, adapters, prompt, count):
        """Logits for each of `count` likeliest tokens, which are fed back."""
        lib, model = self.lib, self.open(path)
        if not model:
            return None
        raw = bytearray(bytes(lib.llama_context_default_params().bytes))
        struct.pack_into("<3I", raw, 0, 128, 128, 128)
        struct.pack_into("<4i", raw, 20, 128, 128, 1, 1)  # outputs, threads
        struct.pack_into("<i", raw, 52, 0)  # no flash attention
        struct.pack_into("<2i", raw, 104, 0, 0)  # a cache in float32
        context = lib.llama_init_from_model(model, Parameters.from_buffer_copy(raw))
        if adapters:
            adapter = lib.llama_adapter_lora_init(model, adapters.encode())
            if not adapter:
                return None
            scales = (ctypes.c_float * 1)(1.0)
            lib.llama_set_adapters_lora(context, (ctypes.c_void_p * 1)(adapter), 1, scales)
        width = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        batch, rows, position, ids = lib.llama_batch_init(128, 0, 1), [], 0, prompt
        for _ in range(count):
            batch.n = len(ids)
            for i, token in enumerate(ids):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position + i, 1, i == len(ids) - 1
                batch.seq_id[i][0] = 0
            if lib.llama_decode(context, batch) != 0:
                return None
            position += len(ids)
            rows.append(np.ctypeslib.as_array(lib.llama_get_logits_ith(context, len(ids) - 1), (width,)).copy())
            ids = [int(rows[-1].argmax())]
        lib.llama_free(context)
        lib.llama_model_free(model)
        return np.stack(rows)

    def tokens(self, path, texts):
        model = self.open(path)
        vocabulary, ids = self.lib.llama_model_get_vocab(model), (ctypes.c_int32 * 4096)()
        found = []
        for text in texts:
            count = self.lib.llama_tokenize(vocabulary, text, len(text), ids, 4096, True, True)
            found.append(list(ids[:count]))
        self.lib.llama_model_free(model)
        return found


def find_llama_cpp():
    try:
        import xllamacpp
    except ImportError:
        return None
    found = LlamaCpp(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "xllamacpp*.so"))[0])
    return found if found.known else None


# --- models ---


def make(name, fields):
    shape, directory = os.path.join(work, "shape"), os.path.join(work, name)
    os.makedirs(shape, exist_ok=True)
    with open(os.path.join(shape, "config.json"), "w") as file:
        json.dump({**BASE, **fields}, file)
    run(fill, "fill", shape, directory, "f32", "0")
    with open(os.path.join(source, "tests/data/golden/texts/tokenizer.json")) as file:
        text = file.read()
    with open(os.path.join(directory, "tokenizer.json"), "w") as file:
        file.write(text)
    return directory


def make_gpt2(name, far):
    """A directory as transformers writes one: matrices of layers are (in, out). far: what gelu gets is far from 0, where llama.cpp
    takes it as it is; nearer it looks it up in a table of float16."""
    directory, random, tensors = os.path.join(work, name), np.random.default_rng(3), {}
    C, layers, context = 64, 2, 128

    def put(name, *dims, around=0.0):
        tensors["transformer." + name] = (around + random.normal(0, 0.2, dims)).astype(np.float32)

    put("wte.weight", V, C)
    put("wpe.weight", context, C)
    for layer in range(layers):
        for part, dims in (("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("mlp.c_fc", (C, 4 * C)), ("mlp.c_proj", (4 * C, C))):
            put(f"h.{layer}.{part}.weight", *dims)
            put(f"h.{layer}.{part}.bias", dims[1])
        for part in ("ln_1", "ln_2"):
            put(f"h.{layer}.{part}.weight", C, around=1.0)
            put(f"h.{layer}.{part}.bias", C)
    put("ln_f.weight", C, around=1.0)
    put("ln_f.bias", C)
    for layer in range(layers if far else 0):
        tensors[f"transformer.h.{layer}.mlp.c_fc.bias"] = np.where(random.random(4 * C) < 0.5, -30, 30).astype(np.float32)
        tensors[f"transformer.h.{layer}.mlp.c_proj.weight"] *= np.float32(0.1)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for key, value in tensors.items():
        header[key] = dict(dtype="F32", shape=list(value.shape), data_offsets=[at, at + value.nbytes])
        at += value.nbytes
    text = json.dumps(header).encode()
    os.makedirs(directory)
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for value in tensors.values()))
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(dict(model_type="gpt2", n_layer=layers, n_head=4, n_embd=C, n_positions=context, n_ctx=context, vocab_size=V,
                       layer_norm_epsilon=1e-5, activation_function="gelu_new"), file)
    return directory, tensors


def check_gpt2():
    directory, tensors = make_gpt2("gpt2", True)
    with open(os.path.join(source, "tests/data/golden/texts/tokenizer.json")) as file, \
            open(os.path.join(directory, "tokenizer.json"), "w") as to:
        to.write(file.read())
    files = {kind: os.path.join(work, f"gpt2.{kind}.gguf") for kind in TYPES}
    for kind, path in files.items():
        run(trainer, "--load", directory, "--export", f"{path},type={kind}", "--quiet")
    compare_bytes("gpt2", files, ["position_embd.weight"])
    # Names and values are those of gguf-py, by its own table.
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, 2)
    found = {t.name: t.data for t in gguf.GGUFReader(files["f32"]).tensors}
    check("gpt2: as many tensors", len(found) == len(tensors))
    for name, value in tensors.items():
        stem, kind = name.rsplit(".", 1)
        theirs = names.get_name(stem) + "." + kind
        turned = value.T if ".c_" in name and kind == "weight" else value
        check(f"gpt2: {name} is {theirs}", theirs in found and np.array_equal(found[theirs], turned))
    keys = gguf.GGUFReader(files["f32"]).fields
    llm, attention = gguf.Keys.LLM, gguf.Keys.Attention
    for key, wanted in ((llm.BLOCK_COUNT, 2), (llm.CONTEXT_LENGTH, 128), (llm.EMBEDDING_LENGTH, 64), (llm.FEED_FORWARD_LENGTH, 256),
                        (attention.HEAD_COUNT, 4), (attention.LAYERNORM_EPS, np.float32(1e-5))):
        key = key.format(arch="gpt2")
        check(f"gpt2: {key}", key in keys and keys[key].contents() == wanted)
    for kind in ("f16", "bf16", "q8_0", "q4_0"):
        compare_file(f"gpt2: {kind}", files[kind], values=False)
    back = os.path.join(work, "gpt2.safetensors")
    run(trainer, "--load", files["f32"], "--export", back, "--quiet")
    with open(back, "rb") as file, open(os.path.join(directory, "model.safetensors"), "rb") as original:
        check("gpt2: back to safetensors", parse(file.read()) == parse(original.read()))
    ours = answers(directory + "/model.safetensors")
    check("gpt2: answers from its GGUF file", np.array_equal(answers(files["f32"]), ours))
    if not llama_cpp:
        return
    print(f"gpt2: logits {compare_answers('gpt2', files['f32'], ours)}")
    near, path = make_gpt2("near", False)[0], os.path.join(work, "near.gguf")
    run(trainer, "--load", near, "--export", path, "--quiet")
    difference = float(np.abs(llama_cpp.answers(path, None, PROMPT, 1)[0] - answers(path)[:V]).max())
    print(f"gpt2, gelu of a table in float16: logits {difference}")
    check("gpt2: near logits", difference < 5e-3, difference)


def parse(data):
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    return {name: (t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def compare_bytes(name, files, plain_too=()):
    """Each matrix has the bytes that gguf-py makes of the float32 ones."""
    plain = {t.name: t for t in gguf.GGUFReader(files["f32"]).tensors}
    for kind, path in files.items():
        reader = gguf.GGUFReader(path)
        check(f"{name}: {kind}: the same tensors", [t.name for t in reader.tensors] == list(plain))
        for tensor in reader.tensors:
            values = plain[tensor.name].data
            wanted = kind if values.ndim == 2 and tensor.name not in plain_too else "f32"
            same = bytes(gguf.quantize(values, gguf.GGMLQuantizationType(TYPES[wanted]))) == bytes(tensor.data)
            check(f"{name}: {kind}: the bytes of {tensor.name}", same)


def compare_file(name, path, values=True):
    """What we read of a file is what gguf-py reads: by a second export."""
    again = os.path.join(work, "again.gguf")
    run(trainer, "--load", path, "--export", again + ",type=f32", "--quiet")
    ours = {t.name: t.data for t in gguf.GGUFReader(again).tensors}
    theirs = gguf.GGUFReader(path).tensors
    check(f"{name}: the same tensors", sorted(t.name for t in theirs) == sorted(ours))
    for tensor in theirs:
        check(f"{name}: the values of {tensor.name}", np.array_equal(gguf.dequantize(tensor.data, tensor.tensor_type), ours[tensor.name]))
    return floats(tool, "values", again) if values else None, {t.tensor_type.name for t in theirs}


def compare_values(name, directory, files):
    original = floats(tool, "values", directory)
    check(f"{name}: float32 comes back", np.array_equal(floats(tool, "values", files["f32"]), original))
    for kind in ("f16", "bf16", "q8_0", "q4_0"):
        check(f"{name}: {kind}: near the original", np.abs(compare_file(f"{name}: {kind}", files[kind])[0] - original).max() < 0.2)


def check_quantised():
    """A file with all types that are read, of blocks at random, written by gguf-py."""
    directory, plain, path = make("wide", dict(model_type="qwen3", hidden_size=256, intermediate_size=512)), os.path.join(work, "wide.gguf"), \
        os.path.join(work, "quantised.gguf")
    run(trainer, "--load", directory, "--export", plain, "--quiet")
    reader, random = gguf.GGUFReader(plain), np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    kinds = [(12, 256, 144), (14, 256, 210), (6, 32, 22), (8, 32, 34), (2, 32, 18)]
    for i, tensor in enumerate(reader.tensors):
        if tensor.data.ndim < 2:
            writer.add_tensor(tensor.name, tensor.data)
            continue
        kind, values, size = kinds[i % len(kinds)]
        rows, columns = tensor.data.shape
        raw = random.integers(0, 256, (rows, columns // values, size), np.uint8)
        for at in ((208,) if kind == 14 else (0, 2) if kind == 12 else (0,)):  # scales
            raw[:, :, at:at + 2] = random.uniform(-0.01, 0.01, (rows, columns // values, 1)).astype(np.float16).view(np.uint8)
        writer.add_tensor(tensor.name, raw.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    types = compare_file("blocks at random", path)[1]
    check("blocks at random: all types", types == {"F32", "Q4_K", "Q6_K", "Q5_0", "Q8_0", "Q4_0"}, types)


def check_shards():
    """A model that gguf-py writes in several files."""
    whole, stem = os.path.join(work, "llama.f32.gguf"), os.path.join(work, "shards")
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(stem + ".gguf", "llama", split_max_tensors=6)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = sorted(glob.glob(stem + "-*.gguf"))[0]
    check("shards: several", first.endswith("-00001-of-00004.gguf"), first)
    check("shards: values", np.array_equal(floats(tool, "values", first), floats(tool, "values", whole)))
    if llama_cpp:
        print(f"shards: logits {compare_answers('shards', first, answers(first))}")


def compare_answers(name, path, ours, adapters=None):
    theirs = llama_cpp.answers(path, adapters, PROMPT, COUNT)
    if theirs is None:
        check(f"{name}: llama.cpp loads it", False)
        return None
    ours = ours.reshape(COUNT, V)
    difference = float(np.abs(ours - theirs).max())
    check(f"{name}: logits", difference < 5e-5, difference)
    check(f"{name}: tokens", np.array_equal(ours.argmax(1), theirs.argmax(1)))
    return difference


def answers(model, adapters="-"):
    return floats(tool, "answers", model, adapters, str(COUNT), *map(str, PROMPT))


def rewrite_adapters(path):
    """With the calls that convert_lora_to_gguf.py makes."""
    reader, again = gguf.GGUFReader(path), os.path.join(work, "rewritten.gguf")
    writer = gguf.GGUFWriter(again, reader.fields["general.architecture"].contents())
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, reader.fields["adapter.lora.alpha"].contents())
    for tensor in reversed(reader.tensors):
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return again


def check_adapters(name, directory, base):
    """Trained a little, exported in both forms."""
    data = os.path.join(work, "tokens.bin")
    with open(data, "wb") as file:
        file.write(b"".join(((31 * i + 7 * i * i) % 256).to_bytes(2, "little") for i in range(2000)))
    for what, lora in (("all", "r=4,alpha=8,targets=all-linear"), ("rslora", "r=4,alpha=8,targets=q_proj,v_proj,rslora")):
        peft, file = os.path.join(work, "peft_" + what), os.path.join(work, "adapter.gguf")
        common = ["--load", directory, "--data", data, "--tokens", "uint16", "--seq-len", "32", "--steps", "5", "--lr", "0.02", "--lora",
                  lora, "--no-eval", "--quiet"]
        run(trainer, *common, "--export", peft)
        run(trainer, *common, "--export", file)
        ours = answers(directory, peft)
        check(f"{name}: {what}: adapters change the answers", np.abs(ours[:V] - answers(directory)[:V]).max() > 0.05)
        figure = compare_answers(f"{name}: {what}: adapters", base, ours, file)
        print(f"{name}, adapters {what}: logits {figure}")
        check(f"{name}: {what}: from their GGUF file", np.array_equal(answers(directory, file), ours))
        check(f"{name}: {what}: as gguf-py writes them", np.array_equal(answers(directory, rewrite_adapters(file)), ours))
        # The same, with the GGUF file as the base; and merged.
        check(f"{name}: {what}: on a GGUF base", np.array_equal(answers(base, peft), ours))
        merged = os.path.join(work, "merged.gguf")
        run(trainer, "--load", base, "--adapters", peft, "--export", merged + ",merge", "--quiet")
        compare_answers(f"{name}: {what}: merged", merged, answers(merged))


# --- tokens ---


def check_tokens(directory):
    texts = ["", "Hello, world!", " leading", "two  spaces   three", "a\n\n\nb\r\n c", "\ttabs\t\tand 12345678 3.14", "it's we'LL don'T",
             "na\u00efve caf\u00e9 \u4f60\u597d \u0442\u0435\u0441\u0442", "x" * 50, "def f(x):\n    return x**2  # ok", "\U0001f600!?"]
    golden = os.path.join(source, "tests/data/text/golden/tokenizers")
    for name in ("gpt2", "llama3", "qwen", "digits", "legacy"):
        with open(os.path.join(golden, name + ".json"), "rb") as file:
            text = file.read()
        shape = dict(BASE, model_type="llama", vocab_size=max(max(json.loads(text)["model"]["vocab"].values()),
                                                              *(t["id"] for t in json.loads(text)["added_tokens"]), 1) + 1)
        os.makedirs(os.path.join(work, "shape"), exist_ok=True)
        with open(os.path.join(work, "shape", "config.json"), "w") as file:
            json.dump(shape, file)
        directory, path = os.path.join(work, "t_" + name), os.path.join(work, "t_" + name + ".gguf")
        run(fill, "fill", os.path.join(work, "shape"), directory, "f32", "0")
        with open(os.path.join(directory, "tokenizer.json"), "wb") as file:
            file.write(text)
        run(trainer, "--load", directory, "--export", path, "--quiet")
        cases = json.dumps(texts).encode()
        lines = [run(tokenizer_tool, "cases", where, data=cases) for where in (directory, path)]
        check(f"tokenizer {name}: it comes back", lines[0] == lines[1])
        if not llama_cpp:
            continue
        for text, line, theirs in zip(texts, lines[0].splitlines(), llama_cpp.tokens(path, [t.encode() for t in texts])):
            ours = json.loads(line)[3]
            check(f"tokenizer {name}: {text!r}", ours == theirs or not text, (ours, theirs))


llama_cpp = find_llama_cpp()
for name, fields in MODELS.items():
    directory = make(name, fields)
    files = {kind: os.path.join(work, f"{name}.{kind}.gguf") for kind in TYPES}
    for kind, path in files.items():
        run(trainer, "--load", directory, "--export", f"{path},type={kind}", "--quiet")
    compare_bytes(name, files)
    compare_values(name, directory, files)
    ours = answers(directory)
    check(f"{name}: answers from its GGUF file", np.array_equal(answers(files["f32"]), ours))
    if llama_cpp:
        print(f"{name}: logits {compare_answers(name, files['f32'], ours)}")
        if name in ("llama3", "qwen3", "smollm3"):
            check_adapters(name, directory, files["f32"])
check_gpt2()
check_shards()
check_quantised()
check_tokens(work)
print(f"{checks} checks, {failed} failed")
if failed:
    sys.exit(1)
if not llama_cpp:
    print("not run: beside llama.cpp: no xllamacpp whose parameters are known")
    sys.exit(77)
