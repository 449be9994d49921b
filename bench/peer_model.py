# SPDX-License-Identifier: Apache-2.0
"""A model of ours as a GGUF file, written by llama.cpp's own converter.

    peer_model.py convert LLAMA_CPP MODEL OUT.gguf q8_0|bf16
    peer_model.py active LLAMA_CPP FILE.gguf|MODEL

`convert` runs convert_hf_to_gguf.py of the folder LLAMA_CPP. Its one change: the converter
knows tokenizers by a hash over what they do with a text, and no hash of a made-up
vocabulary is in its list, so it is told that ours cuts text like that of Qwen3.5, which is
so. FP8 blocks are multiplied out by the converter itself. The head that predicts a second
token is left out: neither side runs it here.

`active` prints how many weights one token needs and their bytes: every matrix once, of
the experts only those that a token is sent to, of the embedding nothing.
"""
import glob
import json
import math
import runpy
import sys


def convert(folder, model, out, kind):
    """Runs the converter on a model folder."""
    sys.path.insert(0, folder)
    from conversion import base  # pylint: disable=import-error
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen35"
    sys.argv = ["convert_hf_to_gguf.py", model, "--outfile", out, "--outtype", kind,
                "--no-mtp"]
    runpy.run_path(folder + "/convert_hf_to_gguf.py", run_name="__main__")


def gguf_tensors(folder, path):
    """Name, number of weights and bytes of each matrix; the share of experts in use."""
    sys.path.insert(0, folder + "/gguf-py")
    import gguf  # pylint: disable=import-error
    reader = gguf.GGUFReader(path)
    arch = reader.fields["general.architecture"].contents()
    used, count = (reader.fields.get(f"{arch}.expert_{key}") for key in
                   ("used_count", "count"))
    share = used.contents() / count.contents() if count else 1
    return [(t.name, int(t.n_elements), int(t.n_bytes)) for t in reader.tensors
            if len(t.shape) > 1], share


def folder_tensors(path):
    """The same of a model folder, from the headers of its files."""
    size = {"F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4}
    tensors = []
    for file in sorted(glob.glob(path + "/*.safetensors")):
        with open(file, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        for name, t in header.items():
            if len(t.get("shape", [])) < 2 or name.startswith("mtp."):
                continue
            if not name.endswith("_scale_inv"):
                n = math.prod(t["shape"])
                tensors.append((name, n, n * size[t["dtype"]]))
    with open(path + "/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config = config.get("text_config", config)
    return tensors, config.get("num_experts_per_tok", 1) / config.get("num_experts", 1)


def active(folder, path):
    """Prints the weights that a token needs, and their bytes."""
    gguf = path.endswith(".gguf")
    tensors, share = gguf_tensors(folder, path) if gguf else folder_tensors(path)
    weights = size = 0
    for name, n, n_bytes in tensors:
        if "embed_tokens" in name or name == "token_embd.weight":
            continue
        part = share if "_exps." in name or ".experts." in name else 1
        weights += n * part
        size += n_bytes * part
    print(int(weights), int(size))


if __name__ == "__main__":
    if len(sys.argv) == 6 and sys.argv[1] == "convert":
        convert(*sys.argv[2:])
    elif len(sys.argv) == 4 and sys.argv[1] == "active":
        active(*sys.argv[2:])
    else:
        sys.exit(__doc__)
