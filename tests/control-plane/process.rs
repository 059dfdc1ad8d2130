//! A server or program under test as a child process that cannot outlive the test.
//!
//! `unsafe` is forbidden here, so `prctl(PR_SET_PDEATHSIG)` is out of reach.
//! Instead every program runs below a tiny `sh` whose standard input is a pipe
//! that only the test process holds: however the test ends (drop, panic,
//! SIGKILL), the pipe closes and the supervisor kills the program by its pid.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// `$1` is the log file, the rest the program and its arguments. The first
/// line on standard output is the pid of the program itself; the exit code of
/// the shell is the program's (128 + signal if it was killed).
const SUPERVISOR: &str = r#"
exec 3<&0
log=$1; shift
"$@" </dev/null >>"$log" 2>&1 3<&- &
pid=$!
echo "$pid"
exec >/dev/null 2>&1
{ while read -r _ <&3; do :; done; kill -KILL "$pid"; } &
watcher=$!
exec 3<&-
wait "$pid"; code=$?
kill -KILL "$watcher"
exit "$code"
"#;

/// A running program, killed when dropped. Its output goes to a log file.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    log: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    supervisor: Child,
    /// Held open for as long as the program may live.
    stdin: Option<ChildStdin>,
    code: Option<i32>,
}

/// Starts `command` (program, arguments, environment changes and working
/// directory are honoured; its standard streams are not) with its output
/// appended to `log`.
pub fn spawn(command: &Command, log: &Path) -> Result<Process> {
    let program = command.get_program();
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("open the log file {}", log.display()))?;
    if Path::new(program).components().count() > 1 && !Path::new(program).exists() {
        bail!("{} does not exist", Path::new(program).display());
    }

    let mut sh = Command::new("/bin/sh");
    sh.arg("-c").arg(SUPERVISOR).arg("supervisor").arg(log);
    sh.arg(program).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => sh.env(key, value),
            None => sh.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        sh.current_dir(dir);
    }
    let mut supervisor = sh
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("start {name}"))?;
    let stdin = supervisor.stdin.take();
    let mut line = String::new();
    if let Some(stdout) = supervisor.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let pid = line
        .trim()
        .parse()
        .with_context(|| format!("the supervisor of {name} did not report a pid"))?;
    Ok(Process {
        name,
        pid,
        log: log.to_owned(),
        state: Mutex::new(State { supervisor, stdin, code: None }),
    })
}

impl Process {
    /// Pid of the program itself (not of its supervisor).
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The program's file name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that holds what the program printed.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last `bytes` of the log, for error messages.
    pub fn log_tail(&self, bytes: u64) -> String {
        tail(&self.log, bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exit code if the program has ended (128 + n after signal n).
    pub fn exit_code(&self) -> Result<Option<i32>> {
        let mut state = self.state();
        if state.code.is_none()
            && let Some(status) = state.supervisor.try_wait()?
        {
            state.code = Some(status.code().unwrap_or(-1));
        }
        Ok(state.code)
    }

    /// Whether the program still runs.
    pub fn is_running(&self) -> bool {
        matches!(self.exit_code(), Ok(None))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // A pid may be used again once its process was reaped.
        if !self.is_running() {
            return Ok(());
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is not a pid", self.pid))?;
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e).with_context(|| format!("signal {}", self.name)),
        }
    }

    /// Sends SIGKILL and waits until the program is gone.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait_exit(Duration::from_secs(30)).map(|_| ())
    }

    /// Sends SIGTERM and returns at once.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGUSR2 and returns at once.
    pub fn user_signal(&self) -> Result<()> {
        self.signal(Signal::USR2)
    }

    /// Sends SIGSTOP: the program freezes until [`Process::resume`].
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Blocks until the program ended and returns its exit code (128 + n after
    /// signal n); an error with the end of its log if it takes longer.
    pub fn wait_exit(&self, timeout: Duration) -> Result<i32> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(code) = self.exit_code()? {
                return Ok(code);
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} did not end within {timeout:?}; its log ends with:\n{}",
                    self.name,
                    self.log_tail(2_000)
                );
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// User plus system CPU time so far. Fails once the program has ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(self.pid).with_context(|| self.gone())
    }

    /// Highest resident memory so far. Fails once the program has ended.
    pub fn peak_rss_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| self.gone())?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.trim().strip_suffix("kB"));
        let kib = kib.with_context(|| format!("{path} has no VmHWM"))?;
        Ok(kib.trim().parse::<u64>()? * 1024)
    }

    fn gone(&self) -> String {
        format!("{} (pid {}) has ended", self.name, self.pid)
    }

    /// Polls `ready` until it says yes; fails with the log's end if the
    /// program dies or `timeout` passes first.
    pub fn wait_until(
        &self,
        what: &str,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(code) = self.exit_code()? {
                bail!(
                    "{} ended with code {code} before {what}; its log ends with:\n{}",
                    self.name,
                    self.log_tail(4_000)
                );
            }
            if ready() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} is not {what} after {timeout:?}; its log ends with:\n{}",
                    self.name,
                    self.log_tail(4_000)
                );
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
        let mut state = self.state();
        // Closing the pipe makes the supervisor kill too, should the signal
        // have failed.
        drop(state.stdin.take());
        let _ = state.supervisor.wait();
    }
}

/// User plus system CPU time of any process.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The second field, the name, may hold spaces: count from its end.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after.split_whitespace().skip(11);
    let mut tick = || -> Result<u32> {
        let field = fields.next().with_context(|| format!("{path} is short"))?;
        field.parse().with_context(|| format!("{path}: {field}"))
    };
    let ticks = f64::from(tick()?) + f64::from(tick()?);
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second())?;
    Ok(ticks / f64::from(per_second))
}

/// The last `bytes` of a file as text, from a line start.
pub(crate) fn tail(path: &Path, bytes: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(bytes);
        file.seek(SeekFrom::Start(from))?;
        let mut buffer = Vec::new();
        file.read_to_end(&mut buffer)?;
        let text = String::from_utf8_lossy(&buffer).into_owned();
        Ok(match text.split_once('\n') {
            Some((_, rest)) if from > 0 => rest.to_owned(),
            _ => text,
        })
    };
    read().unwrap_or_else(|e| format!("({}: {e})", path.display()))
}
