//! Simulates two servers of unequal speed behind a balancer, in virtual time: lighttpd's
//! experiment.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// Requests per second of each server when it is alone, as measured for lighttpd.
const SPEEDS: [f64; 2] = [2833.6, 1249.45];

/// Number of clients. Each sends its next request after a response.
const CLIENTS: usize = 16;

const REQUESTS: usize = 100_000;

struct SimulationOutcome {
    /// Requests per second.
    rate: f64,
    served: [usize; 2],
}

/// A server. It serves one request after the other, each with its own service time.
#[derive(Default)]
struct SimulatedServer {
    /// Times at which the requests in progress will end, in nanoseconds.
    ends: VecDeque<u64>,
    served: usize,
}

/// Returns a service time; exponentially distributed about the mean, like real requests.
fn service_ns(server: usize, n: u64) -> u64 {
    let uniform = (name_hash(&n.to_le_bytes()) as f64 + 1.0) / (u64::MAX as f64 + 2.0);
    (-uniform.ln() / SPEEDS[server] * 1e9) as u64
}

fn run(word: &str) -> SimulationOutcome {
    let balancer = create(&spec(word));
    let mut choices = addresses(&[1, 1]);
    let mut servers = [SimulatedServer::default(), SimulatedServer::default()];
    let mut answers: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut now = 0;
    for n in 0..REQUESTS {
        if n >= CLIENTS {
            let Some(Reverse((end, server))) = answers.pop() else { break };
            now = end;
            servers[server].ends.pop_front();
        }
        for (choice, server) in choices.iter_mut().zip(&servers) {
            choice.busy = server.ends.len() as u32;
        }
        let picked = balancer.pick(&choices, &key("/", n as u64));
        let server = &mut servers[picked];
        let begin = server.ends.back().copied().unwrap_or(0).max(now);
        let end = begin + service_ns(picked, n as u64);
        server.ends.push_back(end);
        server.served += 1;
        answers.push(Reverse((end, picked)));
    }
    let served = [servers[0].served, servers[1].served];
    SimulationOutcome { rate: (REQUESTS - CLIENTS) as f64 / (now as f64 / 1e9), served }
}

#[test]
fn the_shortest_queue_feeds_unequal_servers_by_their_speed() {
    let round_robin = run("round-robin");
    let sqf = run("sqf");
    let both_alone: f64 = SPEEDS.iter().sum();
    let gain = sqf.rate / round_robin.rate;
    let of_sum = sqf.rate / both_alone;
    let split = sqf.served[0] as f64 / sqf.served[1] as f64;
    let of_ratio = split / (SPEEDS[0] / SPEEDS[1]);
    println!("sqf/rr {gain:.3}, sqf/sum {of_sum:.3}, split {split:.3}, of the ratio {of_ratio:.3}");
    assert!(gain >= 1.51, "{gain}");
    assert!(of_sum >= 0.95, "{of_sum}");
    assert!((of_ratio - 1.0).abs() <= 0.05, "{split}");
    assert_eq!(round_robin.served, [REQUESTS / 2, REQUESTS / 2]);
}

#[test]
fn two_random_choices_do_nearly_as_well() {
    let both_alone: f64 = SPEEDS.iter().sum();
    let rate = run("random").rate;
    assert!(rate / both_alone >= 0.95, "{rate}");
}
