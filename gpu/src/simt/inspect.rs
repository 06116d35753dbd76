//! Reading PTX text: is a kernel there, and is it what its [`Expectations`] say?
//!
//! The kernel build asks this of every file it writes, and the tests ask it again of what the
//! binary carries.

use core::fmt;
use std::string::String;

use super::{Architecture, Count, Expectations};

/// What is wrong with a PTX file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation<'a> {
    /// The PTX calls what nobody defines: the way to a panic that was not optimized out.
    Unresolved {
        /// The declaration's symbol.
        symbol: &'a str,
    },
    /// There is no entry point of this name.
    Missing {
        /// The kernel.
        kernel: &'a str,
    },
    /// There is an entry point that the PTX's architecture should not have.
    Misplaced {
        /// The kernel.
        kernel: &'a str,
        /// What it needs.
        needs: Architecture,
    },
    /// The kernel keeps something in local memory and should not.
    LocalMemory {
        /// The kernel.
        kernel: &'a str,
    },
    /// An instruction does not occur as often as it should.
    Instruction {
        /// The kernel.
        kernel: &'a str,
        /// How the instruction's text begins.
        instruction: &'a str,
        /// What is expected.
        expected: Count,
        /// What is there.
        found: u32,
    },
}

impl fmt::Display for Violation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unresolved { symbol } => write!(
                f,
                "the PTX calls {symbol}, which is defined nowhere: a kernel can panic (a checked index, \
                 a division by what may be zero, a slice)"
            ),
            Self::Missing { kernel } => write!(f, "{kernel}: no such entry point in the PTX"),
            Self::Misplaced { kernel, needs } => {
                write!(f, "{kernel}: needs {needs}, and is in PTX for another architecture")
            }
            Self::LocalMemory { kernel } => write!(
                f,
                "{kernel}: keeps an array in local memory: a loop over registers was not unrolled, or an \
                 index is not constant"
            ),
            Self::Instruction { kernel, instruction, expected, found } => {
                write!(f, "{kernel}: {instruction} occurs {found} times, expected {expected}")
            }
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => write!(f, "never"),
            Self::Exactly(n) => write!(f, "exactly {n}"),
            Self::AtLeast(n) => write!(f, "at least {n}"),
        }
    }
}

/// The body of the entry point `kernel`, between its braces.
#[must_use]
pub fn entry_body<'a>(ptx: &'a str, kernel: &str) -> Option<&'a str> {
    let mut rest = ptx;
    loop {
        let (_, after) = rest.split_once(".entry ")?;
        if let Some(parameters) = after.strip_prefix(kernel).filter(|p| p.starts_with('(')) {
            let (_, body) = parameters.split_once("\n{\n")?;
            return body.split_once("\n}\n").map(|(body, _)| body);
        }
        rest = after;
    }
}

/// The same PTX, in which the entry point `kernel` may take so many registers and no more: without
/// a limit `ptxas` takes a few more where it finds use for them, and a block less fits on the
/// multiprocessor. As it is if there is no such entry point.
#[must_use]
pub fn with_register_limit(ptx: &str, kernel: &str, registers: u32) -> String {
    let Some(body) = entry_body(ptx, kernel) else { return ptx.into() };
    // Where the body begins in the text, and before it the brace.
    let brace = body.as_ptr().addr() - ptx.as_ptr().addr() - "{\n".len();
    let (before, after) = ptx.split_at(brace);
    std::format!("{before}.maxnreg {registers}\n{after}")
}

/// How often an instruction whose text begins like this stands in `body`.
#[must_use]
pub fn occurrences(body: &str, instruction: &str) -> u32 {
    let inside_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$' | '%');
    let mut count = 0;
    for (at, _) in body.match_indices(instruction) {
        count += u32::from(!body[..at].ends_with(inside_a_name));
    }
    count
}

/// Whether PTX resolves all that it calls.
///
/// # Errors
/// [`Violation::Unresolved`].
pub fn check_module(ptx: &str) -> Result<(), Violation<'_>> {
    let Some((_, declaration)) = ptx.split_once(".extern .func") else { return Ok(()) };
    // `.extern .func (.param .b32 result) symbol (...)`: the result is optional.
    let declaration = declaration.trim_start();
    let after_result = match declaration.strip_prefix('(') {
        Some(result) => result.split_once(')').map_or("", |(_, after)| after),
        None => declaration,
    };
    let symbol = after_result.split(['(', ';', '\n']).map(str::trim).find(|part| !part.is_empty());
    Err(Violation::Unresolved { symbol: symbol.unwrap_or("something") })
}

impl Expectations {
    /// Whether the entry point `kernel` of PTX for architecture `sm` is as expected.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn check<'a>(&self, ptx: &str, sm: u32, kernel: &'a str) -> Result<(), Violation<'a>> {
        let body = entry_body(ptx, kernel).ok_or(Violation::Missing { kernel })?;
        if !self.local_memory && (body.contains(".local") || body.contains("__local_depot")) {
            return Err(Violation::LocalMemory { kernel });
        }
        for occurrence in self.instructions.iter().filter(|occurrence| sm >= occurrence.since) {
            let found = occurrences(body, occurrence.instruction);
            if !occurrence.count.admits(found) {
                return Err(Violation::Instruction {
                    kernel,
                    instruction: occurrence.instruction,
                    expected: occurrence.count,
                    found,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simt::Occurrence;

    const PTX: &str = "
.visible .entry first_of_two(
\t.param .align 8 .b8 first_of_two_param_0[24]
)
{
\tbar.sync \t0;
\t@%p1 bra \t$L__BB0_2;
\t{ .reg .pred p; wmma.mma.sync.aligned.row.col.m16n16k16 %r1; }
\tnot.bar.sync 0;
}

.visible .entry first(
)
{
\t.local .align 4 .b8 \t__local_depot1[32];
\tret;
}
";

    fn first_violation(
        kernel: &'static str,
        instructions: &'static [Occurrence],
    ) -> Option<Violation<'static>> {
        Expectations { instructions, registers: 0, local_memory: false }.check(PTX, 80, kernel).err()
    }

    #[test]
    fn a_limit_stands_before_the_body_of_its_kernel() {
        let limited = with_register_limit(PTX, "first_of_two", 128);
        assert!(limited.contains("param_0[24]\n)\n.maxnreg 128\n{\n\tbar.sync"), "{limited}");
        assert_eq!(limited.matches(".maxnreg").count(), 1);
        assert_eq!(entry_body(&limited, "first_of_two"), entry_body(PTX, "first_of_two"));
        assert_eq!(with_register_limit(PTX, "second", 128), PTX);
    }

    #[test]
    fn entries_are_found_by_their_whole_name() {
        assert!(entry_body(PTX, "first").is_some_and(|body| body.contains("__local_depot1")));
        assert!(entry_body(PTX, "first_of_two").is_some_and(|body| body.contains("bar.sync")));
        assert_eq!(entry_body(PTX, "second"), None);
    }

    #[test]
    fn instructions_are_counted_from_their_beginning() {
        assert_eq!(first_violation("first_of_two", &[]), None);
        static FITS: [Occurrence; 3] = [
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new("wmma.mma", Count::Exactly(1)),
            Occurrence::new("cp.async", Count::Exactly(1)).since(90),
        ];
        assert_eq!(first_violation("first_of_two", &FITS), None);
        static TWICE: [Occurrence; 1] = [Occurrence::new("bar.sync", Count::Exactly(2))];
        assert!(matches!(
            first_violation("first_of_two", &TWICE),
            Some(Violation::Instruction { found: 1, expected: Count::Exactly(2), .. })
        ));
    }

    #[test]
    fn what_is_missing_or_local_is_named() {
        assert_eq!(first_violation("second", &[]), Some(Violation::Missing { kernel: "second" }));
        assert_eq!(first_violation("first", &[]), Some(Violation::LocalMemory { kernel: "first" }));
    }

    #[test]
    fn a_call_to_nowhere_is_named() {
        assert_eq!(check_module(PTX), Ok(()));
        let bare = ".extern .func panic_bounds_check\n(\n\t.param .b64 a\n)\n;";
        assert_eq!(check_module(bare), Err(Violation::Unresolved { symbol: "panic_bounds_check" }));
        let result = ".extern .func  (.param .b32 func_retval0) fmt_write\n(";
        assert_eq!(check_module(result), Err(Violation::Unresolved { symbol: "fmt_write" }));
    }
}
