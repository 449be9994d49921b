#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers computes with a checkpoint, on the CPU in float32.

    tools/reference.py run MODEL [--lengths 1,64,130] [--seed 0] [--steps 12] [--top 64]
    tools/reference.py record FILE.json...
    tools/reference.py golden MODEL DIR

`run` prints one JSON object: logits at the last prompt token, greedy ids with the
distance between the best two, mean absolute hidden states, and the draft layer's logits.
`record` reads the make_model command of a file of tests/golden/random, makes the
checkpoint, and replaces the file's results. `golden` compares with the files of
tests/golden, which another program computed, and fails where they differ by more than
two float32 computations do.

FP8 weights are multiplied by their scales into float32; activations are not quantized.
The draft (MTP) layer is put together here from transformers' decoder layer, norm and
rotary classes. transformers' own MtpModel does the same (`golden` compares), but it takes
the class of its norms from the last layer, which is the wrong one where that is linear.

tools/reference_venv.sh DIR makes a virtual environment with the packages it needs.
"""

import argparse
import copy
import glob
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from transformers.modeling_layers import MtpModel
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe

BLOCK = 128
TOLERANCE = {"logits": 3e-4, "states": 1e-3, "draft": 3e-4, "MtpModel": 3e-4}


# ---------------------------------------------------------------------------- weights


def read_tensors(path):
    """Every tensor of a model directory as float32, FP8 ones with their scales."""
    raw = {}
    for name in sorted(glob.glob(os.path.join(path, "*.safetensors"))):
        with safe_open(name, "pt") as f:
            for key in f.keys():
                if not key.startswith("model.visual."):
                    raw[key] = f.get_tensor(key)
    out = {}
    for key in list(raw):
        if key.endswith("_scale_inv"):
            continue
        scale = raw.pop(key + "_scale_inv", None)
        w = raw.pop(key).to(torch.float32)
        if scale is not None:
            s = scale.to(torch.float32)
            s = s.repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)
            w = w * s[..., : w.shape[-2], : w.shape[-1]]
        out[key] = w
    if any(k.endswith("_scale_inv") for k in raw):
        raise SystemExit("scales without weights: %s" % sorted(raw)[:3])
    return out


def fuse_experts(tensors, experts):
    """Puts single experts together the way the experts' class holds them."""
    marker = ".mlp.experts.0.gate_proj.weight"
    for first in [k for k in tensors if k.endswith(marker)]:
        base = first[: -len("0.gate_proj.weight")]

        def take(part):
            return [tensors.pop(f"{base}{e}.{part}.weight") for e in range(experts)]

        gate, up, down = take("gate_proj"), take("up_proj"), take("down_proj")
        both = [torch.cat(pair) for pair in zip(gate, up)]
        tensors[base + "gate_up_proj"] = torch.stack(both)
        tensors[base + "down_proj"] = torch.stack(down)


class Reference:
    """A loaded model: `model` (transformers), and the draft layer's parts or None."""

    def __init__(self, path):
        with open(os.path.join(path, "config.json")) as f:
            config = json.load(f)
        text = config.get("text_config", config)
        text.setdefault("tie_word_embeddings", config.get("tie_word_embeddings", False))
        text = {k: v for k, v in text.items() if k != "quantization_config"}
        self.lib = moe if "num_experts" in text else dense
        prefix = "Qwen3_5Moe" if self.lib is moe else "Qwen3_5"
        self.rms_class = getattr(self.lib, prefix + "RMSNorm")
        self.layer_class = getattr(self.lib, prefix + "DecoderLayer")
        self.config = getattr(self.lib, prefix + "TextConfig")(**text)
        # The eager paths: no fused kernels, softmax over a materialised score matrix.
        self.config._attn_implementation = "eager"
        self.config._experts_implementation = "eager"
        self.config.dtype = torch.float32
        tensors = read_tensors(path)
        if self.lib is moe:
            fuse_experts(tensors, self.config.num_experts)
        tensors = {
            k.replace("model.language_model.", "model.", 1): v for k, v in tensors.items()
        }
        draft = {k: tensors.pop(k) for k in list(tensors) if k.startswith("mtp.")}
        if self.config.tie_word_embeddings:
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        self.model = getattr(self.lib, prefix + "ForCausalLM")(self.config).float()
        self.model.load_state_dict(tensors, strict=True)
        self.model.eval()
        self.draft = self.make_draft(draft) if draft else None

    def make_draft(self, tensors):
        config = copy.deepcopy(self.config)
        config.layer_types = ["full_attention"]
        config.num_hidden_layers = 1
        parts = torch.nn.ModuleDict()
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            parts[name] = self.rms_class(config.hidden_size, eps=config.rms_norm_eps)
        parts["fc"] = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        parts["layers"] = torch.nn.ModuleList([self.layer_class(config, 0)])
        parts.load_state_dict({k[4:]: v for k, v in tensors.items()}, strict=True)
        return parts.float().eval()

    # ------------------------------------------------------------------------ forward

    def forward(self, ids, cache=None):
        """(hidden states after the final norm, logits, cache), one sequence."""
        out = self.model.model(torch.tensor([ids]), cache=cache, use_cache=True)
        return out.last_hidden_state[0], self.model.lm_head(out.last_hidden_state)[0], out.cache

    def greedy(self, ids, steps):
        """The prompt in one piece, then token by token: ids, and the logits before each."""
        _, logits, cache = self.forward(ids)
        rows, made = [logits[-1]], []
        for _ in range(steps):
            made.append(int(rows[-1].argmax()))
            if len(made) < steps:
                rows.append(self.forward(made[-1:], cache)[1][-1])
        return made, torch.stack(rows)

    def states(self, ids):
        """The stream after embedding, each layer and the final norm."""
        seen, core = [], self.model.model

        def keep(_module, _inputs, output):
            seen.append((output[0] if isinstance(output, tuple) else output)[0])

        modules = [core.embed_tokens, *core.layers, core.norm]
        hooks = [m.register_forward_hook(keep) for m in modules]
        self.forward(ids)
        for h in hooks:
            h.remove()
        return seen

    def router_gap(self, ids):
        """The smallest distance between the last expert that a token uses and the first
        that it does not, over all layers, the draft's too, relative to the former; None
        without a choice. Where it is tiny, rounding decides which expert is used."""
        gaps = []

        def keep(module, _inputs, output):
            p = torch.softmax(output[0].float(), -1).sort(-1, descending=True).values
            if module.top_k < p.shape[-1]:
                a, b = p[:, module.top_k - 1], p[:, module.top_k]
                gaps.append(float(((a - b) / a).min()))

        layers = [*self.model.model.layers, *(self.draft["layers"] if self.draft else [])]
        if self.lib is moe:
            hooks = [x.mlp.gate.register_forward_hook(keep) for x in layers]
            self.draft_logits(ids) if self.draft else self.forward(ids)
            for h in hooks:
                h.remove()
        return min(gaps) if gaps else None

    def draft_logits(self, ids):
        """Row i takes the state at position i and the embedding of token i + 1, and
        foretells token i + 2; n - 1 rows for n ids."""
        hidden, _, _ = self.forward(ids)
        n = len(ids) - 1
        core, d = self.model.model, self.draft
        e = d["pre_fc_norm_embedding"](core.embed_tokens(torch.tensor([ids[1:]])))
        h = d["pre_fc_norm_hidden"](hidden[None, :n])
        x = d["fc"](torch.cat([e, h], -1))
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        y = d["layers"][0](
            x, position_embeddings=core.rotary_emb(x, positions), attention_mask=mask
        )
        return self.model.lm_head(d["norm"](y))[0]


# --------------------------------------------------------------------------- results


def prompt_ids(seed, length, vocab):
    """Ids spread over the vocabulary; any generator would do, results keep the ids."""
    state, out = (seed * 1000003 + length) & (2**64 - 1), []
    for _ in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        out.append((state >> 33) % vocab)
    return out


def numbers(values):
    return [round(float(v), 6) for v in values]


def largest(row, count):
    values, ids = row.topk(min(count, row.numel()))
    return {"top_ids": ids.tolist(), "top_logits": numbers(values)}


def margins(rows):
    best = rows.topk(2).values
    return numbers(best[:, 0] - best[:, 1])


def one_prompt(ref, ids, steps, top, fixed):
    made, rows = ref.greedy(ids, steps)
    whole = ref.forward(ids + made[:-1])[1][len(ids) - 1 :]
    gap = ref.router_gap(ids + made)
    out = {"length": len(ids), "ids": ids}
    out.update(largest(rows[0], top))
    out["fixed_logits"] = numbers(rows[0][fixed])
    out["greedy_ids"] = made
    out["margins"] = margins(rows)
    out["cached_or_not"] = float(f"{float((rows - whole).abs().max()):.3g}")
    out["states"] = numbers(s.abs().mean() for s in ref.states(ids))
    if gap is not None:
        out["router_gap"] = float(f"{gap:.3g}")
    if ref.draft is not None:
        draft = ref.draft_logits(ids + made)[len(ids) - 1 :]
        out["draft"] = largest(draft[0], top)
        out["draft"]["fixed_logits"] = numbers(draft[0][fixed])
        out["draft"]["best_ids"] = draft.argmax(-1).tolist()
        out["draft"]["margins"] = margins(draft)
    return out


def results(path, lengths, seed, steps, top):
    ref = Reference(path)
    vocab = ref.config.vocab_size
    fixed = sorted({i * vocab // top for i in range(top)})
    with torch.no_grad():
        prompts = [
            one_prompt(ref, prompt_ids(seed, n, vocab), steps, top, fixed) for n in lengths
        ]
    return {
        "computed_by": f"transformers {transformers.__version__}, torch "
        f"{torch.__version__.split('+')[0]}, float32",
        "fixed_ids": fixed,
        "prompts": prompts,
    }


def dump(value, indent=""):
    """JSON with one line for each array of numbers."""
    if isinstance(value, dict):
        inner = indent + " "
        body = ",\n".join(f"{inner}{json.dumps(k)}: {dump(v, inner)}" for k, v in value.items())
        return "{\n" + body + "\n" + indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = indent + " "
        return "[\n" + ",\n".join(inner + dump(v, inner) for v in value) + "\n" + indent + "]"
    return json.dumps(value)


def record(path, tool):
    with open(path) as f:
        case = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tool, *case["make_model"], folder], check=True, stdout=subprocess.DEVNULL)
        made = results(folder, case["lengths"], case["seed"], case["steps"], case["top"])
        size = sum(os.path.getsize(f) for f in glob.glob(folder + "/*.safetensors"))
    keep = ("about", "make_model", "ranks", "lengths", "seed", "steps", "top")
    with open(path, "w") as f:
        f.write(dump({**{k: case[k] for k in keep}, **made}) + "\n")
    every = [m for p in made["prompts"] for m in p["margins"]]
    gaps = [p["router_gap"] for p in made["prompts"] if "router_gap" in p]
    worst = max(p["cached_or_not"] for p in made["prompts"])
    print(
        f"{path}: {size / 1e6:.1f} MB, {sum(m < 0.01 for m in every)} of {len(every)} margins "
        f"below 0.01, router gap {min(gaps, default=1):.1e}, cached or not {worst:.1e}"
    )


# ---------------------------------------------------------------------------- golden


class Worst:
    """The largest differences by kind."""

    def __init__(self):
        self.seen = {}

    def add(self, kind, got, want):
        got, want = torch.as_tensor(got).float(), torch.as_tensor(want).float()
        self.seen[kind] = max(self.seen.get(kind, 0), float((got - want).abs().max()))


def check_prompt(ref, p, t, worst):
    """Compares one prompt; returns the number of greedy ids that differ."""
    key, ids = p["key"], p["prompt_ids"]
    stop = p["stop_step"]
    steps = len(p["greedy_ids"]) if stop is None else stop + 1
    made, rows = ref.greedy(ids, steps)
    worst.add("logits", rows[0], t[key + ".prompt_logits"])
    for k in range(steps):
        at = t[key + ".top_ids"][k].long()
        worst.add("logits", rows[k][at], t[key + ".top_values"][k])
    if p.get("states"):
        states = ref.states(ids)
        assert len(states) == len(p["states"])
        for got, want in zip(states, p["states"]):
            worst.add("states", got.abs().mean(), want["mean_abs"])
            worst.add("states", got[-1, :8], want["last_first8"])
    if p.get("draft_top_ids"):
        draft = ref.draft_logits(ids + p["greedy_ids"])[len(ids) - 1 :]
        worst.add("draft", draft[0], t[key + ".draft_first_logits"])
        for k in range(steps):
            at = t[key + ".draft_top_ids"][k].long()
            worst.add("draft", draft[k][at], t[key + ".draft_top_values"][k])
    return sum(a != b for a, b in zip(made, p["greedy_ids"]))


def check_draft_layer(ref, ids, worst):
    """Compares the draft layer made here with transformers' general one, which counts
    positions from 1; only differences of positions matter."""
    names = {
        "fc.weight": "eh_proj.weight",
        "pre_fc_norm_embedding.weight": "enorm.weight",
        "pre_fc_norm_hidden.weight": "hnorm.weight",
        "norm.weight": "post_norm.weight",
    }
    ref.config.num_mtp_layers = 1
    ref.config.mtp_layer_types = ["full_attention"]
    other = MtpModel(ref.model, 1).eval()
    weights = ref.draft.state_dict().items()
    other.layers[0].load_state_dict(
        {names.get(k, k.replace("layers.0.", "mtp_block.")): v for k, v in weights}
    )
    hidden, positions = ref.forward(ids)[0], torch.arange(1, len(ids))[None]
    y = other.forward_layer(
        0, hidden[None, :-1], positions, None, input_ids=torch.tensor([ids[1:]])
    )
    worst.add("MtpModel", ref.model.lm_head(y)[0], ref.draft_logits(ids))


def golden(model, folder):
    ref, worst, wrong = Reference(model), Worst(), 0
    with open(os.path.join(folder, "golden.json")) as f:
        prompts = json.load(f)["prompts"]
    with safe_open(os.path.join(folder, "golden.safetensors"), "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    with torch.no_grad():
        for p in prompts:
            wrong += check_prompt(ref, p, tensors, worst)
        check_draft_layer(ref, prompts[0]["prompt_ids"] + prompts[0]["greedy_ids"], worst)
    print(f"greedy ids that differ: {wrong}")
    for kind, value in worst.seen.items():
        print(f"largest difference of {kind}: {value:.2e} (allowed {TOLERANCE[kind]:.0e})")
    return wrong == 0 and all(v <= TOLERANCE[k] for k, v in worst.seen.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="print a checkpoint's results")
    run.add_argument("model")
    run.add_argument("--lengths", default="1,3,63,64,65,130,200")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--steps", type=int, default=12, help="greedy tokens")
    run.add_argument("--top", type=int, default=64, help="logits kept: largest, and fixed ids")
    rec = verbs.add_parser("record", help="fill in the results of tests/golden/random files")
    rec.add_argument("files", nargs="+")
    rec.add_argument("--make-model", default="build/make_model")
    gold = verbs.add_parser("golden", help="compare with the files of tests/golden")
    gold.add_argument("model")
    gold.add_argument("folder")
    args = parser.parse_args()
    if args.verb == "golden":
        sys.exit(0 if golden(args.model, args.folder) else 1)
    if args.verb == "record":
        for path in args.files:
            record(path, args.make_model)
        return
    lengths = [int(n) for n in args.lengths.split(",")]
    print(dump(results(args.model, lengths, args.seed, args.steps, args.top)))


if __name__ == "__main__":
    main()
