"""Writes perplexity.json: what SmolLM2-135M makes of LICENSE-APACHE, by an independent forward pass.

    lanemap tokenize -m MODEL --file LICENSE-APACHE --ids >ids.json     # drop the last line end first
    python3 tests/data/perplexity.py MODEL ids.json >tests/data/perplexity.json

Needs numpy and the package `gguf`, which decodes the weights; f32 everywhere but in the logarithms. Chunks and
scored positions are those of llama.cpp's llama-perplexity.
"""

import json
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

CONTEXT = 512


def main(model, ids):
    reader = GGUFReader(model)
    key = lambda name: reader.fields["llama." + name].contents()
    weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    heads, kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    width, layers, epsilon = key("embedding_length"), key("block_count"), key("attention.layer_norm_rms_epsilon")
    size = width // heads
    ids = np.array(json.load(open(ids)))

    angles = np.outer(np.arange(CONTEXT), key("rope.freq_base") ** (-np.arange(0, size, 2) / size))
    cos, sin = np.cos(angles)[:, None].astype(np.float32), np.sin(angles)[:, None].astype(np.float32)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weights[name + ".weight"]

    def rope(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def forward(tokens):
        x = weights["token_embd.weight"][tokens]
        mask = np.triu(np.full((CONTEXT, CONTEXT), -np.inf, np.float32), 1)
        for layer in range(layers):
            w = lambda name: weights[f"blk.{layer}.{name}.weight"].T
            h = norm(x, f"blk.{layer}.attn_norm")
            q = rope((h @ w("attn_q")).reshape(CONTEXT, heads, size))
            k = rope((h @ w("attn_k")).reshape(CONTEXT, kv_heads, size)).repeat(heads // kv_heads, 1)
            v = (h @ w("attn_v")).reshape(CONTEXT, kv_heads, size).repeat(heads // kv_heads, 1)
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(np.float32(size)) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            x = x + np.einsum("hqk,khd->qhd", scores, v).reshape(CONTEXT, width) @ w("attn_output")
            h = norm(x, f"blk.{layer}.ffn_norm")
            gate = h @ w("ffn_gate")
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up"))) @ w("ffn_down")
        output = weights.get("output.weight", weights["token_embd.weight"])
        return norm(x[CONTEXT // 2 : -1], "output_norm") @ output.T

    chunks = []
    for chunk in ids[: len(ids) // CONTEXT * CONTEXT].reshape(-1, CONTEXT):
        logits = forward(chunk).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        targets = chunk[CONTEXT // 2 + 1 :]
        chunks.append(-logits[np.arange(len(targets)), targets].mean())
    json.dump({"text": "LICENSE-APACHE", "context": CONTEXT, "chunk_nll": [round(float(x), 6) for x in chunks]}, sys.stdout)
    print()


main(*sys.argv[1:])
