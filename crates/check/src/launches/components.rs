//! Circles in a graph: its strongly connected components, without recursion.
//!
//! Not here: what the nodes stand for.

/// Returns the component of each node, and how many there are. A component has a higher number than those that it
/// leads to.
#[must_use]
pub fn components(edges: &[Vec<u32>]) -> (Vec<u32>, usize) {
    const NEW: u32 = u32::MAX;
    let mut component = vec![NEW; edges.len()];
    let (mut number, mut low) = (vec![NEW; edges.len()], vec![NEW; edges.len()]);
    let (mut next, mut found) = (0_u32, 0_u32);
    let mut open: Vec<u32> = Vec::new();
    let mut path: Vec<(u32, usize)> = Vec::new();
    for from in 0..u32::try_from(edges.len()).expect("fewer than 2^32 nodes") {
        if number[from as usize] != NEW {
            continue;
        }
        path.push((from, 0));
        while let Some((node, edge)) = path.last_mut() {
            let at = *node as usize;
            if *edge == 0 {
                (number[at], low[at]) = (next, next);
                next += 1;
                open.push(*node);
            }
            if let Some(&to) = edges[at].get(*edge) {
                *edge += 1;
                if number[to as usize] == NEW {
                    path.push((to, 0));
                } else if component[to as usize] == NEW {
                    low[at] = low[at].min(number[to as usize]);
                }
                continue;
            }
            if low[at] == number[at] {
                while let Some(member) = open.pop() {
                    component[member as usize] = found;
                    if member as usize == at {
                        break;
                    }
                }
                found += 1;
            }
            let reached = low[at];
            path.pop();
            if let Some((parent, _)) = path.last() {
                let parent = *parent as usize;
                low[parent] = low[parent].min(reached);
            }
        }
    }
    (component, found as usize)
}

/// Returns a shortest way from a node back to itself through nodes that are allowed, without the node at its end.
#[must_use]
pub fn shortest_circle(edges: &[Vec<u32>], from: u32, allowed: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
    let mut came: rustc_hash::FxHashMap<u32, u32> = rustc_hash::FxHashMap::default();
    let mut open = std::collections::VecDeque::from([from]);
    while let Some(node) = open.pop_front() {
        for &to in &edges[node as usize] {
            if to == from {
                let mut way = vec![node];
                while let Some(before) =
                    way.last().filter(|last| **last != from).and_then(|last| came.get(last))
                {
                    way.push(*before);
                }
                way.reverse();
                return Some(way);
            }
            if allowed(to) && !came.contains_key(&to) {
                came.insert(to, node);
                open.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{components, shortest_circle};

    #[test]
    fn circles_are_found() {
        let edges = vec![vec![1], vec![2, 3], vec![0], vec![4], vec![]];
        let (component, found) = components(&edges);
        assert_eq!(found, 3);
        assert_eq!(component[0], component[1]);
        assert_eq!(component[0], component[2]);
        assert!(component[0] > component[3] && component[3] > component[4]);
        assert_eq!(shortest_circle(&edges, 0, |_| true), Some(vec![0, 1, 2]));
        assert_eq!(shortest_circle(&edges, 3, |_| true), None);
        assert_eq!(shortest_circle(&[vec![0]], 0, |_| true), Some(vec![0]));
    }
}
