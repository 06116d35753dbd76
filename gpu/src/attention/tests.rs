#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::vec::Vec;

use half::f16;

use super::{Attention, FaPrefillF16kv, Scaling, Sight};
use crate::simt::emulator::{Emulator, Memory};

struct Case {
    tokens: u32,
    start: u32,
    positions: u32,
    kv_heads: u32,
    group: u32,
    causal: bool,
    window: u32,
    softcap: f32,
}

fn reference(q: &[f16], k: &[f16], v: &[f16], hd: usize, c: &Case) -> Vec<f64> {
    let heads = (c.kv_heads * c.group) as usize;
    let scale = 1.0 / (hd as f64).sqrt();
    let mut out = std::vec![0.0; c.tokens as usize * heads * hd];
    for row in 0..c.tokens as usize {
        for h in 0..heads {
            let kvh = h / c.group as usize;
            let pos = c.start as i64 + row as i64;
            let mut w = Vec::new();
            for p in 0..c.positions as usize {
                let d = pos - p as i64;
                if (c.causal && d < 0) || (c.window > 0 && d >= i64::from(c.window)) {
                    continue;
                }
                let mut s: f64 = (0..hd)
                    .map(|i| {
                        q[(row * heads + h) * hd + i].to_f64()
                            * k[(p * c.kv_heads as usize + kvh) * hd + i].to_f64()
                    })
                    .sum::<f64>()
                    * scale;
                if c.softcap != 0.0 {
                    s = f64::from(c.softcap) * (s / f64::from(c.softcap)).tanh();
                }
                w.push((p, s));
            }
            let m = w.iter().map(|x| x.1).fold(f64::NEG_INFINITY, f64::max);
            let l: f64 = w.iter().map(|x| (x.1 - m).exp()).sum();
            for (p, s) in w {
                let e = (s - m).exp() / l;
                for i in 0..hd {
                    out[(row * heads + h) * hd + i] +=
                        e * v[(p * c.kv_heads as usize + kvh) * hd + i].to_f64();
                }
            }
        }
    }
    out
}

fn values(seed: u64, n: usize) -> Vec<f16> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            f16::from_f32(((state >> 40) as f32) / (1 << 23) as f32 - 1.0)
        })
        .collect()
}

fn run<const HD: u32, const TQ: u32, const TKV: u32, const ST: u32, const SW: u32>(c: &Case, seed: u64) {
    let hd = HD as usize;
    let heads = (c.kv_heads * c.group) as usize;
    let q = values(1, c.tokens as usize * heads * hd);
    let k = values(2, c.positions as usize * c.kv_heads as usize * hd);
    let v = values(3, c.positions as usize * c.kv_heads as usize * hd);
    let mut memory = Memory::new();
    let out = memory.output("out", q.len());
    let kernel = FaPrefillF16kv::<HD, TQ, TKV, ST, SW>(Attention {
        out,
        query: memory.input("query", &q),
        keys: memory.input("keys", &k),
        values: memory.input("values", &v),
        tokens: c.tokens,
        start: c.start,
        positions: c.positions,
        kv_heads: c.kv_heads,
        group: c.group,
        sight: Sight::new(c.causal, c.window),
        scaling: Scaling::new(1.0 / (HD as f32).sqrt(), c.softcap),
    });
    let counters = Emulator::new().seed(seed).launch(&mut memory, kernel).unwrap_or_else(|e| panic!("{e}"));
    memory.check_written_once(out).unwrap();
    let got: Vec<f32> = memory.values(out);
    let want = reference(&q, &k, &v, hd, c);
    let mut worst = 0.0_f64;
    for (g, w) in got.iter().zip(&want) {
        let e = (f64::from(*g) - w).abs();
        assert!(e <= 1e-4, "{g} {w}");
        worst = worst.max(e);
    }
    std::eprintln!(
        "hd {HD} tq {TQ} tkv {TKV} n {} start {}: worst {worst:.2e} barriers {} wmma {} conflicts {} {}",
        c.tokens,
        c.start,
        counters.barriers,
        counters.wmma_mma,
        counters.shared_loads.conflicts,
        counters.shared_stores.conflicts
    );
}

#[test]
fn quick() {
    let base = Case {
        tokens: 65,
        start: 0,
        positions: 65,
        kv_heads: 1,
        group: 2,
        causal: true,
        window: 0,
        softcap: 0.0,
    };
    run::<128, 64, 32, 1, 0>(&base, 1);
    run::<128, 64, 32, 1, 0>(&Case { tokens: 129, start: 37, positions: 166, ..base }, 2);
    run::<128, 64, 32, 1, 0>(&Case { tokens: 64, start: 0, positions: 64, window: 5, ..base }, 3);
    run::<128, 64, 32, 1, 0>(
        &Case { tokens: 64, start: 100, positions: 50, window: 5, causal: false, ..base },
        3,
    );
    run::<128, 64, 32, 1, 0>(&Case { softcap: 5.0, ..base }, 4);
    run::<128, 64, 32, 1, 0>(&Case { causal: false, positions: 33, ..base }, 4);
    run::<128, 64, 16, 1, 0>(&base, 5);
    run::<128, 64, 64, 1, 0>(&base, 5);
    run::<128, 128, 32, 1, 0>(&base, 5);
    run::<128, 48, 32, 2, 1>(&base, 5);
    run::<128, 64, 32, 2, 0>(&Case { tokens: 129, start: 37, positions: 166, ..base }, 2);
    run::<80, 64, 32, 1, 0>(&base, 5);
    run::<96, 64, 32, 1, 0>(&base, 5);
    run::<64, 64, 32, 1, 0>(&base, 5);
    run::<256, 64, 32, 1, 0>(&base, 5);
}
