//! Following the kubelet's directories.
//!
//! Owns: which files of the kubelet tell that something has changed. Must never read what is in
//! them, and never spin: directories that are not there are looked for again at a slow pace, or when the one above
//! says that they have come.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tracing::{debug, warn};

/// Between two looks for a directory that is not there.
const AGAIN: Duration = Duration::from_secs(15);
/// Room for events of one read; what does not fit comes with the next.
const BUFFER: usize = 4096;

/// Directories below the kubelet's own, and the kubelet's own.
const DIRS: [&str; 3] = ["", "device-plugins", "pod-resources"];
/// Files in the kubelet's own directory that change with what pods hold.
const STATE_FILES: [&str; 3] = ["cpu_manager_state", "memory_manager_state", "dra_manager_state"];
/// The sockets that a kubelet makes anew at each start.
const SOCKETS: [&str; 1] = ["kubelet.sock"];

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Pods may hold something else.
    pub holdings: bool,
    /// The kubelet was started again, or its configuration file was written.
    pub settings: bool,
}

/// Watches the kubelet's directory and its configuration file.
pub struct Watch {
    fd: AsyncFd<OwnedFd>,
    root: PathBuf,
    /// The directory and the name of the configuration file.
    config: Option<(PathBuf, String)>,
    /// Watch descriptors, in the order of [`DIRS`]; the configuration file's directory last.
    watched: [Option<i32>; DIRS.len() + 1],
}

impl Watch {
    /// Must be called inside a runtime.
    pub fn new(root: &Path, config: &Path) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let name = config.file_name().map(|name| name.to_string_lossy().into_owned());
        let config = config.parent().map(Path::to_owned).zip(name);
        #[expect(
            deprecated,
            reason = "sound for an owned descriptor; what replaces it is an unsafe function"
        )]
        let fd = AsyncFd::new(fd)?;
        let mut watch = Self { fd, root: root.to_owned(), config, watched: [None; 4] };
        watch.look();
        Ok(watch)
    }

    /// Waits until something has changed, and says what. Events that arrived together are one.
    pub async fn changed(&mut self) -> Change {
        loop {
            if self.look() {
                // A directory has come: whatever is in it is news.
                return Change { holdings: true, settings: true };
            }
            let whole = self.watched.iter().all(Option::is_some);
            let wait = async {
                if whole {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(AGAIN).await;
            };
            let mut ready = tokio::select! {
                ready = self.fd.readable() => match ready {
                    Ok(ready) => ready,
                    Err(error) => {
                        warn!("the kubelet's directory cannot be followed: {error}");
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                },
                () = wait => continue,
            };
            let (change, gone) = drain(self.fd.get_ref(), &self.watched, self.config.as_ref());
            ready.clear_ready();
            for wd in gone {
                for slot in self.watched.iter_mut().filter(|slot| **slot == Some(wd)) {
                    *slot = None;
                }
            }
            if change != Change::default() {
                return change;
            }
        }
    }

    /// Looks for directories that are not watched yet; says whether one was found.
    fn look(&mut self) -> bool {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut found = false;
        for (i, slot) in self.watched.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
            let path = match (DIRS.get(i), &self.config) {
                (Some(dir), _) => self.root.join(dir),
                (None, Some((dir, _))) => dir.clone(),
                (None, None) => continue,
            };
            match inotify::add_watch(self.fd.get_ref(), &path, flags) {
                Ok(wd) => {
                    *slot = Some(wd);
                    found = true;
                }
                Err(error) => debug!("{}: {error}; looked for again later", path.display()),
            }
        }
        found
    }
}

/// Reads all events that are there: what they mean, and which watches have ended.
fn drain(
    fd: &OwnedFd,
    watched: &[Option<i32>],
    config: Option<&(PathBuf, String)>,
) -> (Change, Vec<i32>) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let (mut change, mut gone) = (Change::default(), Vec::new());
    while let Ok(event) = reader.next() {
        let flags = event.events();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Events were lost: anything may have changed.
            change = Change { holdings: true, settings: true };
            continue;
        }
        if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            gone.push(event.wd());
            continue;
        }
        let name = event.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        // One directory may be watched for two reasons, with one descriptor.
        for (i, _) in watched.iter().enumerate().filter(|(_, wd)| **wd == Some(event.wd())) {
            let meant = meaning(i, &name, config);
            change.holdings |= meant.holdings;
            change.settings |= meant.settings;
        }
    }
    (change, gone)
}

/// What it means that a file of the `i`th directory was made or written.
fn meaning(i: usize, name: &str, config: Option<&(PathBuf, String)>) -> Change {
    match DIRS.get(i) {
        None => Change { settings: config.is_some_and(|(_, file)| file == name), holdings: false },
        // A directory that is looked for may have come: an answer to nothing, but it ends the wait.
        Some(&"") => Change {
            holdings: STATE_FILES.contains(&name) || DIRS.contains(&name),
            settings: false,
        },
        Some(_) => Change { holdings: true, settings: SOCKETS.contains(&name) },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);
    const HOLDINGS: Change = Change { holdings: true, settings: false };

    /// What the next change is; deadlines are far, so that a busy machine passes.
    async fn next(watch: &mut Watch) -> Change {
        timeout(SOON, watch.changed()).await.expect("a change")
    }

    #[test]
    fn files_have_meanings() {
        let config = (PathBuf::from("/etc"), "config.yaml".to_owned());
        let cases = [
            (0, "cpu_manager_state", HOLDINGS),
            (0, "pod-resources", HOLDINGS),
            (0, "pods", Change::default()),
            (1, "kubelet_internal_checkpoint", HOLDINGS),
            (1, "kubelet.sock", Change { holdings: true, settings: true }),
            (2, "kubelet.sock", Change { holdings: true, settings: true }),
            (3, "config.yaml", Change { holdings: false, settings: true }),
            (3, "other", Change::default()),
        ];
        for (dir, name, expected) in cases {
            assert_eq!(meaning(dir, name, Some(&config)), expected, "{dir} {name}");
        }
    }

    #[tokio::test]
    async fn what_a_kubelet_writes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for sub in ["device-plugins", "pod-resources"] {
            fs::create_dir(root.join(sub)).unwrap();
        }
        let mut watch = Watch::new(root, &root.join("config.yaml")).unwrap();
        fs::write(root.join("unrelated"), "").unwrap();
        fs::write(root.join("cpu_manager_state.tmp"), "").unwrap();
        fs::rename(root.join("cpu_manager_state.tmp"), root.join("cpu_manager_state")).unwrap();
        assert_eq!(next(&mut watch).await, HOLDINGS);
        fs::write(root.join("config.yaml"), "a: 1").unwrap();
        assert!(next(&mut watch).await.settings);
    }

    #[tokio::test]
    async fn directories_may_come_go_and_come_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("kubelet");
        fs::create_dir(&root).unwrap();
        let mut watch = Watch::new(&root, &root.join("config.yaml")).unwrap();
        for _ in 0..2 {
            fs::create_dir(root.join("pod-resources")).unwrap();
            while !next(&mut watch).await.settings {}
            fs::write(root.join("pod-resources/kubelet.sock"), "").unwrap();
            while !next(&mut watch).await.settings {}
            fs::remove_dir_all(root.join("pod-resources")).unwrap();
        }
    }
}
