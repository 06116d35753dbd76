//! Stop strings in a stream: text is passed on as soon as it cannot belong to one.

/// Looks for stop strings in text that comes in pieces. What it passes on does not depend
/// on where the pieces were cut.
#[derive(Debug)]
pub(super) struct StopStrings<'a> {
    stops: &'a [String],
    held: String,
}

/// What a piece of text led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Text that may be shown now.
    pub(super) text: String,
    /// Whether a stop string is complete; it and what follows it are dropped.
    pub(super) stopped: bool,
}

impl<'a> StopStrings<'a> {
    /// `stops` must not contain the empty string, which would be found at once.
    pub(super) fn new(stops: &'a [String]) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        // The stop string that is complete first; of two that end together, the longer one.
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop).map(|start| (start + stop.len(), start)))
            .min();
        if let Some((_, start)) = found {
            self.held.truncate(start);
            return Passed { text: std::mem::take(&mut self.held), stopped: true };
        }
        let begins_a_stop = |&(at, _): &(usize, char)| {
            let tail = &self.held[at..];
            self.stops.iter().any(|stop| stop.starts_with(tail))
        };
        let keep_from = self.held.char_indices().find(begins_a_stop).map_or(self.held.len(), |(at, _)| at);
        let rest = self.held.split_off(keep_from);
        Passed { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// The text that was held back, once no more comes.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    /// Everything shown, and whether it stopped.
    fn run<'a>(stops: &[String], pieces: impl IntoIterator<Item = &'a str>) -> (String, bool) {
        let mut matcher = StopStrings::new(stops);
        let mut shown = String::new();
        for piece in pieces {
            let passed = matcher.push(piece);
            shown += &passed.text;
            if passed.stopped {
                return (shown, true);
            }
        }
        (shown + &matcher.finish(), false)
    }

    #[test]
    fn text_without_a_beginning_of_a_stop_is_passed_at_once() {
        let stops = stops(&["\n\n", "END"]);
        let mut matcher = StopStrings::new(&stops);
        assert_eq!(matcher.push("hello"), Passed { text: "hello".into(), stopped: false });
        assert_eq!(matcher.push(" E"), Passed { text: " ".into(), stopped: false });
        assert_eq!(matcher.push("N"), Passed::default());
        assert_eq!(matcher.push("E"), Passed { text: "EN".into(), stopped: false });
        assert_eq!(matcher.push("\n"), Passed { text: "E".into(), stopped: false });
        assert_eq!(matcher.finish(), "\n");
    }

    #[test]
    fn the_result_does_not_depend_on_the_cuts() {
        let text = "aab ééé ababac x\r\n\r\nEND";
        let cases: [(&[&str], &str); 7] = [
            (&["ababac"], "aab ééé "),
            (&["éx", "éé "], "aab é"),
            (&["\n\n", "\r\n\r\n"], "aab ééé ababac x"),
            (&["babac", "ba", "b é"], "aa"),
            (&["babac", "ba"], "aab ééé a"),
            (&["aab", "ab"], ""),
            (&["none"], text),
        ];
        for (texts, expected) in cases {
            let stops = stops(texts);
            let stopped = texts[0] != "none";
            let chars: Vec<String> = text.chars().map(String::from).collect();
            for size in 1..=chars.len() {
                let pieces: Vec<String> = chars.chunks(size).map(<[String]>::concat).collect();
                let result = run(&stops, pieces.iter().map(String::as_str));
                assert_eq!(result, (expected.to_owned(), stopped), "{texts:?}, {size} characters a piece");
            }
        }
    }

    #[test]
    fn without_stop_strings_nothing_is_held() {
        assert_eq!(StopStrings::new(&[]).push("x"), Passed { text: "x".into(), stopped: false });
    }
}
