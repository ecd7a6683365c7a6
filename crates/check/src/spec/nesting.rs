//! How deep the expressions and blocks of a file are nested, told before it is parsed.
//!
//! Parsing, and all that walks the tree afterwards, takes stack for each level, and a stack that ends ends the process.
//! The answer is an upper bound: operators that stand beside each other count as nested, as most of them are.
//! Not here: what the text means.

use crate::spec::compare::Code;

/// One pair of brackets that is open, or the line outside of all.
#[derive(Default)]
struct Level {
    /// Operators, calls, indices and attributes since the last comma.
    chained: usize,
}

/// Returns the line that is nested deepest, and how deep; none for an empty file.
pub(super) fn deepest(text: &str) -> Option<(u32, usize)> {
    let code = Code::of(text);
    let mut open = vec![Level::default()];
    // The branches of each `elif`, by indentation: each stands in the one before.
    let mut branches: Vec<(usize, usize)> = Vec::new();
    let mut deepest: Option<(u32, usize)> = None;
    for (line, number) in code.bytes().split(|byte| *byte == b'\n').zip(1..) {
        if open.len() == 1 {
            open[0].chained = 0;
            if let Some(indented) = line.iter().position(|byte| !byte.is_ascii_whitespace()) {
                let branch = line[indented..].starts_with(b"elif");
                branches.retain(|(at, _)| *at < indented || (*at == indented && branch));
                match branches.last_mut() {
                    Some((at, nth)) if *at == indented => *nth += usize::from(branch),
                    _ => branches.push((indented, 1)),
                }
            }
        }
        let blocks: usize = branches.iter().map(|(_, nth)| nth).sum();
        let mut word = false;
        for (at, byte) in line.iter().enumerate() {
            let level = open.last_mut().expect("the line itself is never closed");
            match byte {
                b'(' | b'[' | b'{' => open.push(Level::default()),
                b')' | b']' | b'}' => {
                    if open.len() > 1 {
                        open.pop();
                    }
                    // A call or an index is an operand of what follows it.
                    open.last_mut().expect("the line itself is never closed").chained += 1;
                }
                b',' | b';' => level.chained = 0,
                b'+' | b'-' | b'*' | b'/' | b'%' | b'.' | b'|' | b'&' | b'^' | b'<' | b'>' | b'=' | b'~' => {
                    level.chained += 1;
                }
                b'a'..=b'z' if !word && operator(&line[at..]) => level.chained += 1,
                _ => {}
            }
            word = byte.is_ascii_alphanumeric() || *byte == b'_';
            let nested = blocks + open.len() + open.iter().map(|level| level.chained).sum::<usize>();
            if deepest.is_none_or(|(_, most)| nested > most) {
                deepest = Some((number, nested));
            }
        }
    }
    deepest
}

/// Whether an operator that is a word stands at the beginning.
fn operator(text: &[u8]) -> bool {
    let words: [&[u8]; 7] = [b"not", b"and", b"or", b"if", b"else", b"lambda", b"in"];
    let end =
        text.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(text.len());
    words.contains(&&text[..end])
}

#[cfg(test)]
mod tests {
    use super::deepest;

    #[test]
    fn what_stands_side_by_side_is_not_nested() {
        let depth = |text: &str| deepest(text).map(|(_, depth)| depth);
        let wide = format!("x = [{}]\n", "(1, f(2)), ".repeat(5000));
        assert!(depth(&wide).is_some_and(|depth| depth < 10), "{:?}", depth(&wide));
        let long = "x = f(1) + 2\n".repeat(5000);
        assert!(depth(&long).is_some_and(|depth| depth < 10), "{:?}", depth(&long));
        let nested: [String; 6] = [
            format!("x = {}{}", "[".repeat(3000), "]".repeat(3000)),
            format!("x = 0{}", " + 1".repeat(3000)),
            format!("x = (0{})", "\n    + 1".repeat(3000)),
            format!("x = {}True", "not ".repeat(3000)),
            format!("x = f{}", "()".repeat(3000)),
            format!("if a:\n    b\n{}", "elif c:\n    d\n".repeat(3000)),
        ];
        for text in nested {
            assert!(depth(&text).is_some_and(|depth| depth >= 3000), "{:?}: {}", depth(&text), &text[..20]);
        }
    }
}
