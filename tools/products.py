"""Times lanemap's f16 product on sm_90a beside cuBLAS (through PyTorch), on one GPU in one process, in turns.

    python3 tools/products.py target/debug/build/host-*/out/sm_90a.ptx

out = A · Bᵀ, A and B f16, random, sums in f32. lanemap's kernels read panels (gpu/src/product/panels.rs),
those of B with rows in another order, and write f32; cuBLAS reads rows and writes f16, which is less, and f32
where this PyTorch has it. First every kernel is compared with f64 on 200 elements; one that is off is not timed.
Batches of ten launches between two events, behind a kernel that only waits, so that launching costs nothing;
median of 60 batches. `matmul_f16_wgmma_gated` takes B as gate and up, and writes f16 of SiLU(gate) · up: it is
compared with f32 products, all of it.
"""

import statistics
import struct
import sys

import torch

from timing import functions, launcher, milliseconds

SHAPES = [
    (8192, 8192, 8192),
    (3328, 37888, 3584),
    (3328, 3584, 18944),
    (3328, 3584, 3584),
    (512, 37888, 3584),
]
# Of a kernel: columns of a tile, stages (gpu/src/product/matmul_f16_wgmma.rs).
KERNELS = {
    "matmul_f16_wgmma": (256, 4),
    "matmul_f16_wgmma_n240": (240, 4),
    "matmul_f16_wgmma_n128": (128, 6),
}
GATED = "matmul_f16_wgmma_gated"
TILE_M, THREADS, STAGES_BYTES = 128, 288, 192 << 10


def panels(matrix):
    """Panels of 128 rows × 64 columns, a row's chunk c of eight columns in place c XOR row % 8."""
    rows, columns = matrix.shape
    padded = torch.zeros(-(-rows // 256) * 256, columns, dtype=matrix.dtype, device=matrix.device)
    padded[:rows] = matrix
    parts = padded.view(-1, 128, columns // 64, 8, 8).transpose(1, 2)
    places = torch.arange(8, device=matrix.device)
    order = (places[None, :] ^ (torch.arange(128, device=matrix.device)[:, None] % 8))[None, None, :, :, None]
    return torch.gather(parts, 3, order.expand(parts.shape)).contiguous()


def interleaved(matrix):
    """The rows in the order of weights in panels: of 16, row 8 j + 2 q + e is row 4 q + 2 j + e."""
    row = torch.arange(len(matrix), device=matrix.device)
    j, q, e = row % 16 // 8, row % 8 // 2, row % 2
    return matrix[row // 16 * 16 + 4 * q + 2 * j + e]


def parts(tiles, blocks):
    """Tiles, of which those of a last round that half of the blocks would have are halves."""
    last = tiles % blocks
    return tiles + last if last <= blocks // 2 else tiles


def kernels(path):
    """The kernels of a PTX file: functions that make one that launches a product."""
    all_kernels = {**KERNELS, GATED: KERNELS["matmul_f16_wgmma"]}
    shared = {name: STAGES_BYTES + 2 * stages * 8 for name, (_, stages) in all_kernels.items()}
    loaded = functions(path, shared)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    for name, (tile_n, _) in all_kernels.items():

        def product(out, a, b, shape, name=name, tile_n=tile_n):
            m, n, k = shape
            tiles = -(-m // TILE_M) * -(-n // tile_n)
            # gpu::product::MatmulF16Wgmma: out and no bias, or out, width and SiLU; input, weights, m, n, k, blocks
            # that run at a time.
            epilogue = struct.pack("<Q2I", out.data_ptr(), n // 2 if name == GATED else 0, 0)
            arguments = epilogue + struct.pack("<2Q4I", a.data_ptr(), b.data_ptr(), m, n, k, blocks)
            grid = (min(parts(tiles, blocks), blocks), 1, 1)
            return launcher(loaded[name], grid, THREADS, shared[name], arguments, (out, a, b))

        yield name, product


def turns(matrix):
    """Gate and up, one below the other, with their panels of 128 rows in turns."""
    return matrix.view(2, -1, 128, matrix.shape[1]).transpose(0, 1).reshape(matrix.shape)


def gated_error(out, a, b):
    """The worst element, over what f16, the activation and sums of such products may be off by."""
    halves = b.chunk(2)
    gate, up = (a.float() @ half.float().T for half in halves)
    off_gate, off_up = (a.float().abs() @ half.float().abs().T * 2.0**-12 for half in halves)
    activated = torch.nn.functional.silu(gate)
    expected = activated * up
    bound = 1.1 * off_gate * (up.abs() + off_up) + activated.abs() * off_up + expected.abs() * 2.0**-10
    off = (out.float() - panels(expected)).abs() / (panels(bound) + 2.0**-14)
    return None if bool((off <= 1).all()) else off.max().item()


def error(out, a, b):
    """The worst of 200 elements, over what sums of such products may be off by."""
    rows, columns = (torch.randint(0, size, (200,), device="cuda") for size in out.shape)
    x, y = a[rows].double(), b[columns].double()
    exact, bound = (x * y).sum(1), (x * y).abs().sum(1) * 2.0**-12
    # Not below is what NaN is, too.
    off = (out[rows, columns].double() - exact).abs()
    return None if bool((off <= bound).all()) else (off / bound).max().item()


def main():
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print("| m × n × k | kernel | ms | TFLOP/s | speed over cuBLAS |\n| --- | --- | ---: | ---: | ---: |")
    loaded = list(kernels(sys.argv[1]))
    for shape in SHAPES:
        m, n, k = shape
        a, b = (torch.randn(rows, k, device="cuda").half() for rows in (m, n))
        out, half = (torch.empty(m, n, dtype=t, device="cuda") for t in (torch.float32, torch.float16))
        rows = [("cuBLAS, f16 out", lambda: torch.mm(a, b.T, out=half))]
        try:
            torch.mm(a, b.T, out_dtype=torch.float32)
            rows.append(("cuBLAS, f32 out", lambda: torch.mm(a, b.T, out_dtype=torch.float32)))
        except (RuntimeError, TypeError) as reason:
            print(f"no cuBLAS with f32 out: {reason}", file=sys.stderr)
        in_panels = panels(a), panels(interleaved(b))
        for name, product in loaded:
            target, weights, compare = out, in_panels[1], error
            if name == GATED:
                if n != 37888:  # The shape of gate and up.
                    continue
                target = panels(out[:, : n // 2].half())
                weights, compare = panels(interleaved(turns(b))), gated_error
            launch = product(target, in_panels[0], weights, shape)
            target.fill_(float("nan"))
            launch()
            torch.cuda.synchronize()
            wrong = compare(target, a, b)
            if wrong is None:
                rows.append((name, launch))
            else:
                print(f"{name}: off by {wrong} of the bound, not timed")
        times = {name: [] for name, _ in rows}
        for _ in range(5):
            for name, launch in rows:
                times[name].append(milliseconds(launch))
        medians = {name: statistics.median(times[name]) for name, _ in rows}
        for name, time in medians.items():
            speed = 2 * m * n * k / time / 1e9
            ratio = medians["cuBLAS, f16 out"] / time
            print(f"| {m} × {n} × {k} | {name} | {time:.4f} | {speed:.0f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
