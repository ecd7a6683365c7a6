//! Damaged recordings are refused or read, and nothing else happens. `fuzz_recording` does the same for longer.
//!
//! Not here: which damage gives which error (`crates/recording`).

use rankcheck_tests::damage::{Random, damaged, read, seeds};

#[test]
fn damage_is_refused_or_read() {
    let directory = std::env::temp_dir().join(format!("rankcheck-damaged-{}", std::process::id()));
    let seeds = seeds(&directory).expect("the directory for temporary files can be written");
    std::fs::create_dir_all(&directory).expect("as before");
    let file = directory.join("damaged.rankrec");
    let (mut whole, mut refused) = (0, 0);
    for number in 1..=3_000_u64 {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes = damaged(&seeds[random.below(seeds.len())], &mut random);
        match read(&bytes, &file) {
            Ok(_) => whole += 1,
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("damaged.rankrec"), "{error}");
            }
        }
    }
    std::fs::remove_dir_all(&directory).expect("it was made");
    assert!(whole > 300 && refused > 300, "{whole} read, {refused} refused");
}
