//! `lanemap devices`, `lanemap kernels` and `--device cuda` as a user runs them: with a GPU, without
//! a driver, and with a driver that is damaged or shows nothing.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::process::{Command, Stdio};

use lanemap::cuda;
use lanemap::ptx::Assembler;

/// Standard output, standard error, exit code.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn devices_are_listed_or_their_absence_explained() {
    let (out, errors, code) = run(&["devices"], &[]);
    assert_eq!((errors.as_str(), code), ("", Some(0)));
    match cuda::devices() {
        Ok(devices) => {
            assert_eq!(out.lines().count(), devices.len());
            for (line, device) in out.lines().zip(devices) {
                assert!(line.starts_with(&format!("cuda:{}  {}, ", device.index, device.name)), "{line}");
                assert!(
                    line.contains(&format!("capability {}.{}", device.sm / 10, device.sm % 10)),
                    "{line}"
                );
            }
        }
        Err(error) => assert_eq!(out, format!("no CUDA device: {error}\n")),
    }
}

/// Whatever is wrong with the driver, the program runs, and what it says is one line.
#[test]
fn a_damaged_driver_or_hidden_devices_are_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("libcuda.so.1"), "").unwrap();
    let library = ("LD_LIBRARY_PATH", folder.path().to_str().unwrap());
    let hidden = ("CUDA_VISIBLE_DEVICES", "");
    for environment in [&[library][..], &[hidden], &[library, hidden]] {
        let (out, errors, code) = run(&["devices"], environment);
        assert_eq!((errors.as_str(), code), ("", Some(0)), "{environment:?}");
        assert!(out.starts_with("no CUDA device: ") && out.lines().count() == 1, "{environment:?}: {out}");
        let (_, errors, code) = run(&["--version"], environment);
        assert_eq!((errors.as_str(), code), ("", Some(0)));
        for command in ["generate", "bench"] {
            let (out, errors, code) = run(&[command, "--device", "cuda"], environment);
            assert_eq!((out.as_str(), code), ("", Some(1)), "{environment:?}: {errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
            assert!(errors.starts_with("error: --device cuda:0: "), "{errors}");
            assert!(errors.ends_with("; use --device cpu\n"), "{errors}");
        }
        let asked =
            [(&["experiment", "r50"][..], "; use --device cpu\n"), (&["kernels"], "asks ptxas instead\n")];
        for (command, remedy) in asked {
            let (out, errors, code) = run(&[command, &["--device", "cuda"]].concat(), environment);
            assert_eq!((out.as_str(), code, errors.lines().count()), ("", Some(1), 1), "{errors}");
            assert!(errors.starts_with("error: --device cuda:0: ") && errors.ends_with(remedy), "{errors}");
        }
    }
    let (out, _, _) = run(&["devices"], &[library]);
    assert!(out.contains("libcuda.so.1"), "which file is damaged: {out}");
}

#[test]
fn every_kernel_is_listed_with_its_contract() {
    let (out, errors, code) = run(&["kernels", "--contract"], &[]);
    assert_eq!((errors.as_str(), code), ("", Some(0)));
    for entry in gpu::kernels::ALL {
        let line = out.lines().find(|line| line.starts_with(&format!("{} ", entry.name)));
        let line = line.unwrap_or_else(|| panic!("{} is not in:\n{out}", entry.name));
        let launch = entry.launch();
        assert!(line.contains(&format!(" {} ", launch.threads)), "{line}");
        assert!(line.contains(&format!(" + {}", launch.shared_bytes)), "{line}");
        assert!(line.contains(&format!("({})", entry.expectations.registers)), "{line}");
        for occurrence in entry.expectations.instructions {
            assert!(out.contains(&format!("    {}: ", occurrence.instruction)), "{occurrence:?}");
        }
    }
}

#[test]
fn what_cannot_be_asked_is_refused_in_one_line() {
    let (_, errors, code) = run(&["kernels", "--device", "cpu"], &[]);
    assert!(errors.contains("--arch") && code == Some(2), "{errors}");
    let (_, errors, code) =
        run(&["kernels", "--arch", "sm_86"], &[("PATH", ""), ("LANEMAP_PTXAS", "absent")]);
    assert_eq!((errors.lines().count(), code), (1, Some(1)), "{errors}");
    assert!(errors.contains("absent"), "{errors}");
    if lanemap::ptx::variants().is_ok() {
        not_ptxas();
    }
    let (_, errors, code) = run(&["generate", "--device", "cuda:4000000000"], &[]);
    assert_eq!((errors.lines().count(), code), (1, Some(1)), "{errors}");
}

/// What LANEMAP_PTXAS may name by mistake: one line with it, what came of it, and the remedy.
fn not_ptxas() {
    let mut wrong = vec![("/nonexistent", "does not start: ")];
    if cfg!(unix) {
        wrong.extend([("/bin/false", "it says nothing"), ("/bin/true", "it says nothing")]);
        wrong.push(("/bin/cat", "is no ptxas: it says '"));
    }
    for (program, what) in wrong {
        let environment = [("LANEMAP_PTXAS", program)];
        for command in [&["kernels", "--arch", "sm_86"][..], &["experiment", "ledger"]] {
            let (out, errors, code) = run(command, &environment);
            assert_eq!((out.as_str(), code, errors.lines().count()), ("", Some(1), 1), "{errors}");
            assert!(errors.starts_with(&format!("error: LANEMAP_PTXAS={program} ")), "{errors}");
            assert!(errors.contains(what) && errors.matches("os error").count() <= 1, "{errors}");
            assert!(errors.ends_with(", or unset\n"), "{errors}");
        }
    }
    let (_, errors, code) = run(&["experiment", "ledger"], &[("PATH", ""), ("LANEMAP_PTXAS", "")]);
    assert_eq!((errors.as_str(), code), ("", Some(0)), "empty is unset");
    if Assembler::find().is_some() {
        let (_, errors, code) = run(&["kernels", "--arch", "sm_1"], &[]);
        assert_eq!((errors.lines().count(), code), (1, Some(2)), "{errors}");
        assert!(errors.contains("--arch sm_1: no kernels for it: they are for sm_75 or later"), "{errors}");
        let (_, errors, code) = run(&["kernels", "--arch", "sm_999"], &[]);
        assert_eq!((errors.lines().count(), code), (1, Some(1)), "{errors}");
        assert!(errors.contains("does not know sm_999: "), "{errors}");
    }
}
