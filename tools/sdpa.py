"""Times lanemap's attention kernels beside PyTorch's scaled_dot_product_attention, on one GPU in one
process, each in turn.

    python3 tools/sdpa.py target/debug/build/host-*/out/sm_90a.ptx [TOKENS]

28 query heads, 4 KV heads, head size 128, causal. First every kernel is compared with PyTorch's
attention in f32 on four heads (1e-4); one that is off is not timed. Batches of ten launches between two
events, behind a kernel that only waits, so that launching costs nothing; median of 60 batches.
"""

import math
import statistics
import struct
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from timing import functions, launcher, milliseconds

HEADS, KV_HEADS, HEAD_SIZE = 28, 4, 128
# Of a kernel's launch: rows of a block, threads, bytes of shared memory (`lanemap kernels`).
KERNELS = {
    "fa_prefill_f16kv": (64, 128, 34_816),
    "fa_prefill_f16kv_tkv16": (64, 128, 32_768),
    "fa_prefill_f16kv_tkv64": (64, 128, 52_224),
    "fa_prefill_f16kv_tq128": (128, 256, 65_536),
    "fa_prefill_f16kv_tq48_double": (48, 128, 47_872),
    "fa_prefill_f16kv_double": (64, 128, 52_224),
    "fa_prefill_f16kv_shared": (64, 256, 69_376),
    "fa_prefill_f16kv_shared_tkv32_padded": (64, 256, 45_824),
    "fa_prefill_f16kv_wgmma": (128, 384, 229_488),
}
# Those that have as many blocks as there are multiprocessors, which they are told behind the problem.
PERSISTENT = {"fa_prefill_f16kv_wgmma"}


def kernels(path, tokens, query, keys, values, out):
    """The kernels of a PTX file as functions that launch them."""
    # gpu::attention::Attention: four addresses; tokens, start, positions, KV heads, group; who sees
    # what (causal, no window); no soft cap, and the scale as an exponent of 2.
    group = HEADS // KV_HEADS
    scale = math.log2(math.e) / math.sqrt(HEAD_SIZE)
    addresses = [tensor.data_ptr() for tensor in (out, query, keys, values)]
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    fields = [tokens, 0, tokens, KV_HEADS, group, 0, 2**31 - 1, 0.0, scale, blocks]
    arguments = struct.pack("<4Q5IiI2f4xI4x", *addresses, *fields)
    loaded = functions(path, {name: shared for name, (_, _, shared) in KERNELS.items()})
    for name, (tile, threads, shared) in KERNELS.items():
        tiles = -(-tokens // tile)
        grid = (min(HEADS * tiles, blocks), 1, 1) if name in PERSISTENT else (HEADS, tiles, 1)
        yield name, launcher(loaded[name], grid, threads, shared, arguments)


def main():
    path = sys.argv[1]
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 3314
    torch.manual_seed(0)
    uniform = lambda heads: (torch.rand(tokens, heads, HEAD_SIZE, device="cuda") * 2 - 1).half()
    query, keys, values = uniform(HEADS), uniform(KV_HEADS), uniform(KV_HEADS)
    out = torch.full((tokens, HEADS, HEAD_SIZE), math.nan, device="cuda")
    by_head = lambda x: x.transpose(0, 1).unsqueeze(0).contiguous()
    repeated = [by_head(x.repeat_interleave(HEADS // KV_HEADS, 1)) for x in (keys, values)]
    q, (k, v) = by_head(query), repeated
    first = [x[:, :4].float() for x in (q, k, v)]
    reference = scaled_dot_product_attention(*first, is_causal=True)[0].transpose(0, 1)

    def sdpa(backend):
        def launch():
            with sdpa_kernel(backend):
                scaled_dot_product_attention(q, k, v, is_causal=True)

        return launch

    rows = [("PyTorch, flash", sdpa(SDPBackend.FLASH_ATTENTION)), ("PyTorch, cuDNN", sdpa(SDPBackend.CUDNN_ATTENTION))]
    for name, launch in kernels(path, tokens, query, keys, values, out):
        out.fill_(math.nan)
        launch()
        torch.cuda.synchronize()
        error = (out[:, :4] - reference).abs().max().item()
        if error <= 1e-4:
            rows.append((name, launch))
        else:
            print(f"{name}: off by {error}, not timed")
    for _, launch in rows:
        milliseconds(launch, 3)
    times = {name: [] for name, _ in rows}
    for _ in range(5):
        for name, launch in rows:
            times[name].append(milliseconds(launch))
    flash = statistics.median(times["PyTorch, flash"])
    operations = 4 * HEADS * HEAD_SIZE * tokens * tokens / 2
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {tokens} tokens")
    print("| kernel | ms | TFLOP/s | speed over flash |\n| --- | ---: | ---: | ---: |")
    for name, _ in rows:
        time = statistics.median(times[name])
        print(f"| {name} | {time:.4f} | {operations / time / 1e9:.0f} | {flash / time:.3f} |")


if __name__ == "__main__":
    main()
