//! A real server on the embedded model under 64 closed-loop clients, against the bare engine loop of the same work:
//!
//!     cargo bench --bench saturation -- [--seconds 60] [--clients 64]
//!
//! Every client sends PNG files of its own, so that each request is decoded, resized and encoded; the feature cache is off.
//! Checks as it goes that every reply equals the reply to the same request sent alone, that liveness is answered throughout,
//! and that a stop under load loses nothing. Prints a table; ends with an error when a check fails.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde_json::Value;
use tapline::engine::compute::ComputePool;
use tapline::engine::generate::{Plan, generate};
use tapline::geometry::Region;
use tapline::models::{Checkpoint, LoadOptions, LoadedModel, PromptRow, load};
use tapline::screenshot::{self, Limits};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Requests of one batch, as the server makes them by default.
const BATCH: usize = 16;
/// Turns of the bare loop and the server.
const ROUNDS: u32 = 3;
/// Screenshots in the mix, each different.
const SCREENSHOTS: usize = 64;
/// A balancer asks every few seconds; this is far more often, and still costs the server next to nothing.
const PROBE_INTERVAL: Duration = Duration::from_millis(25);
const COMMANDS: [&str; 4] = ["sign in", "open settings", "the save button", "click on search"];

struct Shot {
    file: Vec<u8>,
    command: &'static str,
}

fn main() -> Outcome<()> {
    let seconds = Duration::from_secs(argument("--seconds")?.unwrap_or(60));
    let clients = usize::try_from(argument("--clients")?.unwrap_or(64))?;
    let shots = screenshots()?;
    let threads = std::thread::available_parallelism()?.get();
    let pool = ComputePool::new(threads)?;

    let model = load(&Checkpoint::Embedded, &LoadOptions::default())?;
    let mut server = Server::start()?;
    let alone = shots.iter().map(|shot| server.connect()?.locate(shot)).collect::<Outcome<Vec<_>>>()?;
    // In turns, since a shared machine gets faster and slower; the server is idle while the bare loop runs.
    let (mut bare, mut rates, mut load) = (Vec::new(), Vec::new(), Load::default());
    for round in 1..=ROUNDS {
        bare.push(pool.run(|| bare_loop(&model, &shots, seconds / ROUNDS / 2))?);
        let end = if round == ROUNDS { End::Terminate } else { End::Rest };
        rates.push(saturate(&mut server, &shots, &alone, (seconds / ROUNDS, clients), end, &mut load)?);
    }
    bare.push(pool.run(|| bare_loop(&model, &shots, seconds / ROUNDS / 2))?);

    println!("| figure | value |\n|---|---|");
    println!("| compute threads, clients, seconds | {threads}, {clients}, {} |", seconds.as_secs());
    println!("| bare engine loop, requests/s, in turns | {} |", listed(&bare));
    println!("| server, requests/s, in turns | {} |", listed(&rates));
    println!(
        "| overhead of the server, by the medians | {:.1} % |",
        (1.0 - quantile(&rates, 0.5) / quantile(&bare, 0.5)) * 100.0
    );
    println!("| replies: right, refused with 429, lost or wrong | {}, {}, {} |", load.right, load.refused, load.wrong);
    println!(
        "| answer p50, p99 | {:.1} ms, {:.1} ms |",
        quantile(&load.latencies, 0.5),
        quantile(&load.latencies, 0.99)
    );
    println!(
        "| /health/live p50, p99 | {:.2} ms, {:.2} ms |",
        quantile(&load.probes, 0.5),
        quantile(&load.probes, 0.99)
    );
    println!("| exit code after SIGTERM under load | {} |", load.exit);
    if load.wrong > 0 || load.exit != 0 {
        return Err("a reply was lost or wrong, or the server did not end well".into());
    }
    Ok(())
}

fn argument(name: &str) -> Outcome<Option<u64>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    Ok(arguments.nth(1).map(|value| value.parse()).transpose()?)
}

/// The model's own sample screens with one corner pixel changed, so that no two files are alike.
fn screenshots() -> Outcome<Vec<Shot>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/models/pocket/samples");
    let mut paths: Vec<_> = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "png"));
    paths.sort();
    (0..SCREENSHOTS)
        .map(|index| {
            let mut picture = image::open(&paths[index % paths.len()])?.to_rgb8();
            picture.put_pixel(0, 0, image::Rgb([u8::try_from(index)?, 0, 255]));
            let mut file = std::io::Cursor::new(Vec::new());
            picture.write_to(&mut file, image::ImageFormat::Png)?;
            Ok(Shot { file: file.into_inner(), command: COMMANDS[index % COMMANDS.len()] })
        })
        .collect()
}

/// The same work without queue, threads of its own, or HTTP: requests per second.
fn bare_loop(model: &LoadedModel, shots: &[Shot], time: Duration) -> Outcome<f64> {
    let (profile, grammar) = (&model.profile, model.profile.grammar());
    let plan = Plan { strategy: profile.generation.strategy, constrained: true, alternatives: 0 };
    let (started, mut answered) = (Instant::now(), 0u32);
    while started.elapsed() < time {
        for batch in shots.chunks(BATCH) {
            let prepared: Vec<_> = batch
                .par_iter()
                .map(|shot| {
                    let decoded = screenshot::decode(&shot.file, &Limits::default())?;
                    let rgb = screenshot::resize(decoded.rgb(), decoded.size(), profile.image);
                    let ids = profile.tokenizer.encode(&profile.template.render(shot.command)?)?;
                    Ok((profile.normalizer.planes(&rgb), ids, decoded.size()))
                })
                .collect::<Outcome<_>>()?;
            let pixels: Vec<&[f32]> = prepared.iter().map(|(pixels, ..)| pixels.as_slice()).collect();
            let features = model.locator.encode_images(&pixels)?;
            let rows: Vec<_> =
                prepared.iter().zip(&features).map(|((_, ids, _), features)| PromptRow { features, ids }).collect();
            let mut session = model.locator.begin(&rows)?;
            let answers = generate(&mut *session, rows.len(), &profile.generation, grammar.as_ref(), plan)?;
            for (answer, (shot, (_, _, size))) in answers.into_iter().zip(batch.iter().zip(&prepared)) {
                std::hint::black_box(profile.ground(shot.command, answer, Region::whole(*size)));
                answered += 1;
            }
        }
    }
    Ok(f64::from(answered) / started.elapsed().as_secs_f64())
}

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Outcome<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tapline"))
            .args(["serve", "--port", "0", "--feature-cache-mb", "0"])
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = process.stderr.take().ok_or("no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on http://")?.1.trim().to_owned()))
            .ok_or("the server did not say where it listens")?;
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let server = Self { process, address };
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.connect()?.get("/health/ready")?.0 != 200 {
            if Instant::now() > deadline {
                return Err("the server did not become ready".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn connect(&self) -> Outcome<Connection> {
        Connection::open(&self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
    }
}

/// A keep-alive connection of the plainest kind, so that the clients cost little beside the server.
struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn get(&mut self, path: &str) -> Outcome<(u16, Vec<u8>)> {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n"), &[])
    }

    fn post(&mut self, shot: &Shot) -> Outcome<(u16, Vec<u8>)> {
        let command = shot.command.replace(' ', "%20");
        let head = format!(
            "POST /locate?command={command} HTTP/1.1\r\nhost: bench\r\ncontent-type: image/png\r\ncontent-length: {}\r\n\r\n",
            shot.file.len()
        );
        self.exchange(&head, &shot.file)
    }

    /// The part of a reply that does not depend on time.
    fn locate(&mut self, shot: &Shot) -> Outcome<Value> {
        let (status, body) = self.post(shot)?;
        if status != 200 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice::<Value>(&body)?["results"].take())
    }

    fn exchange(&mut self, head: &str, body: &[u8]) -> Outcome<(u16, Vec<u8>)> {
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let (mut line, mut status, mut length) = (String::new(), None, 0);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the connection was closed before the reply".into());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if status.is_none() {
                status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status.ok_or("no status line")?, body))
    }
}

/// How a round under load ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The clients stop asking.
    Rest,
    /// The server is told to end while they ask.
    Terminate,
}

#[derive(Default)]
struct Load {
    right: u64,
    refused: u64,
    wrong: u64,
    latencies: Vec<f64>,
    probes: Vec<f64>,
    exit: i32,
}

/// All clients for the given time; the rate of right replies.
fn saturate(
    server: &mut Server,
    shots: &[Shot],
    alone: &[Value],
    (time, clients): (Duration, usize),
    end: End,
    load: &mut Load,
) -> Outcome<f64> {
    let (stop, draining, rest) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let (right, refused, wrong) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let address = server.address.clone();
    let rate = std::thread::scope(|scope| -> Outcome<f64> {
        let probe = scope.spawn(|| -> Outcome<Vec<f64>> {
            let (mut connection, mut probes) = (Connection::open(&address)?, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                if connection.get("/health/live")?.0 != 200 {
                    return Err("not alive".into());
                }
                probes.push(asked.elapsed().as_secs_f64() * 1e3);
                std::thread::sleep(PROBE_INTERVAL);
            }
            Ok(probes)
        });
        let workers: Vec<_> = (0..clients)
            .map(|client| {
                let (address, draining, rest) = (&address, &draining, &rest);
                let (right, refused, wrong) = (&right, &refused, &wrong);
                scope.spawn(move || -> Outcome<Vec<f64>> {
                    let (mut connection, mut latencies) = (Connection::open(address)?, Vec::new());
                    for turn in 0.. {
                        let index = (client + turn * 7) % shots.len();
                        let asked = Instant::now();
                        let reply = connection.post(&shots[index]);
                        let ends = draining.load(Ordering::Acquire);
                        match reply {
                            Ok((200, body)) if is_same(&body, &alone[index]) => {
                                right.fetch_add(1, Ordering::Relaxed);
                                latencies.push(asked.elapsed().as_secs_f64() * 1e3);
                            }
                            Ok((429, _)) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                            // Refused at the door of a server that ends: never accepted, so nothing is lost.
                            Ok((503, _)) if ends => break,
                            Err(_) if ends && connection.is_unanswered_after_close() => break,
                            other => {
                                if wrong.fetch_add(1, Ordering::Relaxed) < 3 {
                                    eprintln!(
                                        "wrong: {:?}",
                                        other.map(|(status, body)| (status, String::from_utf8(body)))
                                    );
                                }
                                if ends {
                                    break;
                                }
                                connection = Connection::open(address)?;
                            }
                        }
                        if rest.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    Ok(latencies)
                })
            })
            .collect();
        // At first all clients wait for their first answer: that ramp is no part of a steady rate.
        std::thread::sleep(time / 6);
        let (before, started) = (right.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(time.saturating_sub(time / 6));
        let rate = (right.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        load.probes.extend(probe.join().map_err(|_| "the probe panicked")??);
        match end {
            End::Rest => rest.store(true, Ordering::Relaxed),
            End::Terminate => {
                draining.store(true, Ordering::Release);
                terminate(&server.process)?;
            }
        }
        for worker in workers {
            load.latencies.extend(worker.join().map_err(|_| "a client panicked")??);
        }
        Ok(rate)
    })?;
    if end == End::Terminate {
        load.exit = server.process.wait()?.code().unwrap_or(-1);
    }
    load.right += right.into_inner();
    load.refused += refused.into_inner();
    load.wrong += wrong.into_inner();
    Ok(rate)
}

impl Connection {
    /// A request sent just as the server closed an idle connection was never read: asking again is safe, and the reply is
    /// a refused connection or a 503.
    fn is_unanswered_after_close(&mut self) -> bool {
        let peer = self.stream.get_ref().peer_addr();
        peer.is_ok_and(|peer| TcpStream::connect(peer).is_err()) || self.stream.buffer().is_empty()
    }
}

fn terminate(process: &Child) -> Outcome<()> {
    let status = Command::new("kill").args(["-TERM", &process.id().to_string()]).status()?;
    if status.success() { Ok(()) } else { Err("kill failed".into()) }
}

/// Whether a reply says what the reply to the request alone said. Confidences may differ in the last digits, since sums of
/// a batch are added in another order.
fn is_same(body: &[u8], alone: &Value) -> bool {
    fn same(a: &Value, b: &Value, key: &str) -> bool {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b, key)))
            }
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, key)),
            (Value::Number(a), Value::Number(b)) if key == "confidence" => {
                a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| (a - b).abs() < 1e-4)
            }
            (a, b) => a == b,
        }
    }
    let reply: HashMap<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    reply.get("results").is_some_and(|results| same(results, alone, ""))
}

fn listed(rates: &[f64]) -> String {
    rates.iter().map(|rate| format!("{rate:.1}")).collect::<Vec<_>>().join(", ")
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the number of values")]
    let index = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
