//! PTX taken apart, so that one kernel can be compiled without the others: a driver takes as long
//! as there is text.

use std::collections::BTreeMap;
use std::string::String;

/// A PTX file's kernels, and what stands outside them.
#[derive(Clone, Debug)]
pub struct Sections<'a> {
    /// Directives, declarations and functions, in the order of the file, without its comments.
    common: String,
    /// By name, from the line of its `.entry` to that of its last brace.
    entries: BTreeMap<&'a str, &'a str>,
}

impl<'a> Sections<'a> {
    /// Takes apart what a compiler wrote: an entry point begins a line, and `}` alone on a line
    /// ends it.
    #[must_use]
    pub fn of(ptx: &'a str) -> Self {
        let mut this = Self { common: String::new(), entries: BTreeMap::new() };
        let mut rest = ptx;
        while let Some(line) = rest.split_inclusive('\n').next() {
            let mut taken = line.len();
            if let Some(name) = entry_name(line) {
                taken = rest.find("\n}\n").map_or(rest.len(), |end| end + "\n}\n".len());
                this.entries.insert(name, &rest[..taken]);
            } else if !line.trim_start().starts_with("//") {
                this.common += line;
            }
            rest = &rest[taken..];
        }
        this
    }

    /// The kernels' names, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = &'a str> {
        self.entries.keys().copied()
    }

    /// PTX with this kernel alone, if there is one of this name.
    #[must_use]
    pub fn module(&self, kernel: &str) -> Option<String> {
        self.entries.get(kernel).map(|entry| self.common.clone() + entry)
    }
}

/// The name of the entry point that begins with this line.
fn entry_name(line: &str) -> Option<&str> {
    let (linkage, after) = line.split_once(".entry ")?;
    let name = after.split(['(', '\n']).next()?.trim_end();
    matches!(linkage, "" | ".visible " | ".weak ").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "//
// made by hand
//
.version 7.0
.target sm_80
.extern .shared .align 16 .b8 dynamic[];

\t// .globl\tone
.visible .entry one(
\t.param .b64 one_param_0
)
.maxnreg 128
{
\t{ .reg .b32 tmp; }
\tcall helper, ();
\tret;
}
.func helper()
{
\tret; // .entry none(
}
.entry one_more()
{
\tret;
}
";

    #[test]
    fn a_kernel_stands_with_what_is_not_a_kernel() {
        let sections = Sections::of(PTX);
        assert_eq!(sections.kernels().collect::<std::vec::Vec<_>>(), ["one", "one_more"]);
        let common = ".version 7.0\n.target sm_80\n.extern .shared .align 16 .b8 dynamic[];\n\n\
            .func helper()\n{\n\tret; // .entry none(\n}\n";
        let one = ".visible .entry one(\n\t.param .b64 one_param_0\n)\n.maxnreg 128\n{\n\
            \t{ .reg .b32 tmp; }\n\tcall helper, ();\n\tret;\n}\n";
        assert_eq!(sections.module("one"), Some(std::format!("{common}{one}")));
        let more = ".entry one_more()\n{\n\tret;\n}\n";
        assert_eq!(sections.module("one_more"), Some(std::format!("{common}{more}")));
        assert_eq!(sections.module("none"), None);
    }

    #[test]
    fn text_that_ends_early_is_left_to_the_compiler() {
        let cut = Sections::of(".version 7.0\n.entry half()\n{\n\tadd");
        assert_eq!(cut.module("half").as_deref(), Some(".version 7.0\n.entry half()\n{\n\tadd"));
        assert_eq!(Sections::of("").kernels().count(), 0);
    }
}
