"""Writes pretokenizers.json: how the published word patterns cut some texts.

Run with the Python package `regex`. The patterns are those of the models' own tokenizers,
lookahead and all; the file holds the length of each piece in characters.
"""

import json
import pathlib
import random
import regex

CONTRACTIONS = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"


def llama3(digits):
    return rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*" + END


def cased(after, digits):
    first = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{first}{UPPER}*{LOWER}+{after}|{first}{UPPER}+{LOWER}*{after}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + END


RULES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "llama-bpe": [llama3(r"\p{N}{1,3}")],
    "qwen2": [llama3(r"\p{N}")],
    "tekken": [cased("", r"\p{N}")],
    "gpt-4o": [cased(f"(?:{CONTRACTIONS})?", r"\p{N}{1,3}")],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
}
RULES["smaug-bpe"] = RULES["llama-bpe"]


def cut(pattern, text):
    pieces, at = [], 0
    for match in pattern.finditer(text):
        pieces += [text[at : match.start()], match.group()]
        at = match.end()
    return [piece for piece in pieces + [text[at:]] if piece]


TEXTS = [
    "",
    " ",
    "   ",
    "I'll 12345 don't\n\n\t  x",
    "DON'T CAN'T We'Ve 'S 'ſ it's",
    "a  b   c    d\n  e\n\n   f \n \n g   ",
    "x\r\ny\r\n\r\n  z\t\t\tw\n",
    "helloWorld HTTPServer iOS McDonald ÀÉî Ünï ABC's xYZ'Re",
    "$1,000.00 + 3.14159 = ½ ² Ⅷ 1234567890",
    "snake_case a.b(c)[d]{e} // path/to/file\n/x",
    "`code` <|im_end|> <s> [INST] ~^|= --- ...\n\n",
    "naïve cafe\u0301 ﬁ ǅ ʰ straße",
    "日本語のテキスト 中文，分词！ 한국어 문장.",
    "Привет, мир! مرحبا بالعالم שלום สวัสดี",
    "🙂🙃 👩\u200d👧 🏳️\u200d🌈 👍🏽",
    "\u00a0a\u2003b\u3000c\u2028d\u0085e\u200bf\ufeffg",
    "'quotes' ''x'' \"y\" 'll're'd'M'",
]


def random_texts(count):
    source = random.Random(7)
    parts = [" ", "  ", "\n", "\r\n", "\t", "a", "B", "é", "Я", "1", "23", "٣", "'", "s", "ll", "T", ".", "/", "日", "🙂", "_", "\u0301"]
    return ["".join(source.choice(parts) for _ in range(24)) for _ in range(count)]


def main():
    texts = TEXTS + random_texts(40)
    pieces = {}
    for name, patterns in RULES.items():
        patterns = [regex.compile(pattern) for pattern in patterns]
        pieces[name] = []
        for text in texts:
            words = [text] if text else []
            for pattern in patterns:
                words = [piece for word in words for piece in cut(pattern, word)]
            pieces[name].append([len(word) for word in words])
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"texts": texts, "pieces": pieces}, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
