//! The PTX that the binary carries: complete, as its kernels expect it, and accepted by
//! `ptxas` for every architecture without a spill.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failure is a failed test")]

use std::io::{self, Write as _};

use gpu::simt::inspect::{Violation, entry_body};
use gpu::simt::sections::Sections;
use lanemap::ptx::{self, Assembler, Variant};

/// What the kernels have to assemble for.
const ARCHITECTURES: [(u32, &str); 7] = [
    (75, "sm_75"),
    (80, "sm_80"),
    (86, "sm_86"),
    (89, "sm_89"),
    (90, "sm_90a"),
    (120, "sm_120"),
    (121, "sm_121"),
];

/// On stderr, also from a test that passes: cargo hides what `eprintln!` writes there.
fn say(text: &str) {
    let mut stderr = io::stderr();
    writeln!(stderr, "{text}").unwrap();
}

fn skip(test: &str, why: &str) {
    say(&format!("SKIPPED: {test}: {why}"));
}

/// The kernels, unless this build has none.
fn variants(test: &str) -> Option<&'static [Variant]> {
    match ptx::variants() {
        Ok(variants) => Some(variants),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

#[test]
fn every_variant_has_every_kernel_as_expected() {
    let Some(variants) = variants("every_variant_has_every_kernel_as_expected") else { return };
    for variant in variants {
        gpu::kernels::check(variant.text(), variant.architecture())
            .unwrap_or_else(|error| panic!("{}: {error}", variant.name()));
        let target = format!(".target {}\n", variant.name());
        assert!(variant.text().contains(&target), "not for {}", variant.name());
    }
    // A device that runs what a kernel needs gets PTX that has it.
    for entry in gpu::kernels::ALL {
        let first = variants.iter().find(|variant| variant.architecture() == entry.needs);
        assert!(first.is_some(), "{}: there is no PTX for {}", entry.name, entry.needs);
    }
}

#[test]
fn a_kernel_stands_in_the_ptx_of_its_architectures_alone() {
    let test = "a_kernel_stands_in_the_ptx_of_its_architectures_alone";
    let Some(variants) = variants(test) else { return };
    for (variant, later) in variants.iter().zip(&variants[1..]) {
        let violation = gpu::kernels::check(later.text(), variant.architecture()).unwrap_err();
        assert!(matches!(violation, Violation::Misplaced { .. }), "{violation}");
    }
}

#[test]
fn every_kernel_has_a_section_and_each_section_one_kernel() {
    let Some(variants) = variants("every_kernel_has_a_section_and_each_section_one_kernel") else { return };
    for variant in variants {
        let sections = Sections::of(variant.text());
        let has = |entry: &&gpu::kernels::Entry| entry.needs.is_in(variant.architecture());
        let mut names: Vec<_> = gpu::kernels::ALL.iter().filter(has).map(|entry| entry.name).collect();
        names.sort_unstable();
        assert_eq!(sections.kernels().collect::<Vec<_>>(), names, "{}", variant.name());
        for name in names {
            let module = sections.module(name).unwrap();
            assert_eq!(module.matches(".entry ").count(), 1, "{name}");
            assert_eq!(entry_body(&module, name), entry_body(variant.text(), name), "{name}");
            assert!(module.contains(&format!(".target {}\n", variant.name())), "{name}");
        }
    }
}

/// Of each kind: without shared memory, with its own, with the launch's, with a limit of registers.
const ALONE: [&str; 4] = ["vector_add", "block_sum", "fa_prefill_f16kv_hd64", "matmul_f16_q4_k"];

#[test]
fn ptxas_makes_the_same_of_a_kernel_alone() {
    let test = "ptxas_makes_the_same_of_a_kernel_alone";
    let Some(variants) = variants(test) else { return };
    let Some(assembler) = assembler(test) else { return };
    for variant in variants {
        let sections = Sections::of(variant.text());
        let together = assembler.usage(variant.text(), &variant.name(), &ALONE).unwrap();
        assert_eq!(together.len(), ALONE.len());
        for usage in together {
            let module = sections.module(&usage.kernel).unwrap();
            assert_eq!(assembler.usage(&module, &variant.name(), &[]).unwrap(), [usage]);
        }
    }
}

/// NVIDIA's assembler, unless it is not there.
fn assembler(test: &str) -> Option<Assembler> {
    let assembler = Assembler::find();
    if assembler.is_none() {
        skip(test, "no ptxas; set LANEMAP_PTXAS (`pip install nvidia-cuda-nvcc` has one)");
    }
    assembler
}

#[test]
fn ptxas_takes_every_kernel_without_a_spill() {
    let test = "ptxas_takes_every_kernel_without_a_spill";
    let Some(_) = variants(test) else { return };
    let Some(assembler) = assembler(test) else { return };
    let mut table = String::from("| kernel |");
    let mut rows = vec![String::new(); gpu::kernels::ALL.len()];
    for (sm, architecture) in ARCHITECTURES {
        table += &format!(" {architecture} |");
        let variant = ptx::variant_for(sm).unwrap();
        let usage = assembler.usage(variant.text(), architecture, &[]).unwrap();
        for (entry, row) in gpu::kernels::ALL.iter().zip(&mut rows) {
            let name = entry.name;
            let kernel = usage.iter().find(|usage| usage.kernel == name);
            if !entry.needs.is_in(variant.architecture()) {
                assert!(kernel.is_none(), "{name} needs {} and is there for {architecture}", entry.needs);
                *row += " - |";
                continue;
            }
            let kernel = kernel.expect(name);
            assert_eq!(kernel.spill_bytes, 0, "{name} spills on {architecture}");
            assert!(
                kernel.stack_bytes == 0 || entry.expectations.local_memory,
                "{name}: stack on {architecture}"
            );
            let (registers, most) = (kernel.registers, entry.most_registers(sm));
            assert!(
                registers <= most,
                "{name} takes {registers} registers on {architecture}, at most {most} expected"
            );
            *row += &format!(" {registers} |");
        }
    }
    table += &format!("\n|---|{}\n", "---|".repeat(ARCHITECTURES.len()));
    for (entry, row) in gpu::kernels::ALL.iter().zip(&rows) {
        table += &format!("| {} |{row}\n", entry.name);
    }
    say(&format!("registers of a thread, 0 bytes spilled:\n{table}"));
}
