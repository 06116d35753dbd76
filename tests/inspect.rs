//! `lanemap inspect` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io::Read;
use std::process::{Command, Output, Stdio};

use lanemap::gguf::{GgufWriter, OwnedValue, ValueType};
use serde_json::Value;
use support::gguf::{Folder, part_name, tiny, write_split};

fn lanemap(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.args(arguments).current_dir(folder.path("")).stdin(Stdio::null());
    command
}

fn stdout(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_listing_shows_everything_and_nothing_raw() {
    let folder = Folder::new();
    folder.write("tiny.gguf", &tiny().to_bytes().unwrap());
    let text = stdout(lanemap(&folder, &["inspect", "tiny.gguf"]).output().unwrap());
    for line in [
        "file        tiny.gguf",
        "format      GGUF version 3, alignment 32",
        "metadata (23)",
        "  x.i64                 i64     -9223372036854775808",
        "  x.f32                 f32     -0.1",
        r#"  x.string              string  "Ġdes Füße 海\n\"\u{1b}[2J""#,
        r#"  x.bytes               string  "\xf0\x9f""#,
        r#"  x.pairs               array   [3 array] [2 string] "a", "b", [2 string] "", "c", [0 u64]"#,
        "tensors (4)",
        "  token_embd.weight           64 x 5  Q8_0         0.000 MiB",
        "  blk.0.ffn_exps.weight   32 x 2 x 3  F16          0.000 MiB",
        "  F16         1 tensors         192 parameters       0.000 MiB",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn json_holds_everything() {
    let folder = Folder::new();
    let tokens = OwnedValue::array(ValueType::String, (0..100).map(|i| i.to_string()));
    folder.write("tiny.gguf", &tiny().meta("tokens", tokens).to_bytes().unwrap());
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&stdout(lanemap(&folder, arguments).output().unwrap())).unwrap()
    };
    let object = json(&["inspect", "--json", "tiny.gguf"]);
    let metadata = &object["metadata"];
    assert_eq!(object["version"], 3);
    assert_eq!(metadata.as_object().unwrap().len(), 24);
    assert_eq!(metadata["x.u64"], u64::MAX);
    assert_eq!(metadata["x.i64"], i64::MIN);
    assert_eq!(metadata["x.f32"].to_string(), "-0.1");
    assert_eq!(metadata["x.infinite"], "inf");
    assert_eq!(metadata["x.string"], "Ġdes Füße 海\n\"\u{1b}[2J");
    assert_eq!(metadata["x.bytes"]["bytes"], serde_json::json!([0xf0, 0x9f]));
    assert_eq!(metadata["x.pairs"], serde_json::json!([["a", "b"], ["", "c"], []]));
    assert_eq!(metadata["tokens"], serde_json::json!({"array": "string", "len": 100}));
    assert_eq!(json(&["inspect", "--json", "--full", "tiny.gguf"])["metadata"]["tokens"][99], "99");

    let tensor = &object["tensors"][2];
    assert_eq!(tensor["name"], "blk.0.attn_q.weight");
    assert_eq!(tensor["dims"], serde_json::json!([256, 3]));
    assert_eq!((&tensor["format"], &tensor["bytes"]), (&"Q4_K".into(), &432.into()));
    assert_eq!(object["parameters"], 64 * 5 + 64 + 256 * 3 + 192);
    assert_eq!(object["bits_per_weight"], f64::from(8 * (340 + 256 + 432 + 384)) / f64::from(1344));
    let bytes: u64 = object["formats"].as_array().unwrap().iter().map(|f| f["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 340 + 256 + 432 + 384);
}

#[test]
fn files_without_tensors_and_in_parts() {
    let folder = Folder::new();
    folder.write("empty.gguf", &GgufWriter::new().to_bytes().unwrap());
    let text = stdout(lanemap(&folder, &["inspect", "empty.gguf"]).output().unwrap());
    assert!(text.contains("parameters  0\n") && text.contains("tensors (0)"), "{text}");
    let json = stdout(lanemap(&folder, &["inspect", "--json", "empty.gguf"]).output().unwrap());
    assert!(json.contains(r#""bits_per_weight":null"#), "{json}");

    write_split(&folder, 3);
    let text = stdout(lanemap(&folder, &["inspect", &part_name(0, 3)]).output().unwrap());
    assert!(text.contains(&part_name(2, 3)) && text.contains("part.2"), "{text}");
}

#[test]
fn a_bad_file_is_one_line_and_exit_code_1() {
    let folder = Folder::new();
    folder.write("bad.gguf", b"GGUF\x01\0\0\0");
    let output = lanemap(&folder, &["inspect", "bad.gguf"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(errors.starts_with("error: bad.gguf: GGUF version 1 is not supported"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// O32: a reader that goes away after a few bytes is no error.
#[test]
fn o32_closed_pipe() {
    let folder = Folder::new();
    let tokens = OwnedValue::array(ValueType::String, (0..100_000).map(|i| format!("token {i}")));
    folder.write("long.gguf", &GgufWriter::new().meta("tokens", tokens).to_bytes().unwrap());
    for flags in
        [["inspect", "--full", "long.gguf"].as_slice(), &["inspect", "--full", "--json", "long.gguf"]]
    {
        let mut child =
            lanemap(&folder, flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

/// O32: a full disk is one.
#[cfg(target_os = "linux")]
#[test]
fn o32_full_disk() {
    let folder = Folder::new();
    folder.write("tiny.gguf", &tiny().to_bytes().unwrap());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = lanemap(&folder, &["inspect", "tiny.gguf"]).stdout(full).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.starts_with("error: cannot write to standard output: "), "{errors}");
}
