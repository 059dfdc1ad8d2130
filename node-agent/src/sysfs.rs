//! Bounded, rooted reading of sysfs and procfs.
//!
//! Owns every access to the file system. Must never read outside its root (a host's `/sys` is mounted
//! into a container, where an absolute link would lead into the container), never read without a
//! limit, and never write.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The longest file that is read; the longest known one (a large node's cpulist) is below 8 KiB.
const MAX_FILE: u64 = 64 * 1024;
/// As many links as Linux itself follows in one path.
const MAX_LINKS: usize = 40;

/// Why a fact could not be read, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {cause}; mount the host's directory there or point {flag} at it", path.display())]
    Root { path: PathBuf, cause: io::Error, flag: &'static str },
    #[error("{}: {cause}{}", path.display(), remedy(cause))]
    Read { path: PathBuf, cause: io::Error },
    #[error(
        "{}: links lead out of the root or in a circle; mount the whole file system, not a part of it",
        path.display()
    )]
    Link { path: PathBuf },
    #[error(
        "{}: {text:?} is not {expected}; please report it with the kernel version (uname -r)",
        path.display()
    )]
    Malformed { path: PathBuf, text: String, expected: String },
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "; run as a user who may read it",
        io::ErrorKind::NotFound => "; this kernel does not provide it, or it is not mounted",
        _ => "",
    }
}

impl Error {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Read { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

/// A mounted sysfs or procfs. Paths given to its methods are relative to its root.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// `flag` is the option that sets `root`, for the error message.
    pub fn open(root: &Path, flag: &'static str) -> Result<Self, Error> {
        match fs::read_dir(root) {
            Ok(_) => Ok(Self { root: root.to_owned() }),
            Err(cause) => Err(Error::Root { path: root.to_owned(), cause, flag }),
        }
    }

    /// The content of a file, without white space around it.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, Error> {
        let full = self.root.join(self.resolve(path.as_ref())?);
        let mut bytes = Vec::new();
        fs::File::open(&full)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(|cause| Error::Read { path: full.clone(), cause })?;
        if bytes.len() as u64 > MAX_FILE {
            let cause = io::Error::other(format!("longer than {MAX_FILE} bytes"));
            return Err(Error::Read { path: full, cause });
        }
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// As [`Tree::read`], of a path that [`Tree::resolve`] gave: for files that are read again and
    /// again. Nothing if it is not there any more.
    pub fn read_resolved(&self, path: &Path) -> Option<String> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.root.join(path)).ok()?;
        file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub fn read_first_line(&self, path: impl AsRef<Path>) -> Result<String, Error> {
        self.read(path).map(|text| text.lines().next().unwrap_or_default().to_owned())
    }

    /// A file that holds one value; `expected` names the value in the error.
    pub fn parse<T: FromStr>(&self, path: impl AsRef<Path>, expected: &str) -> Result<T, Error> {
        let path = path.as_ref();
        let text = self.read(path)?;
        text.parse().map_err(|_| self.malformed(path, &text, expected))
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        let resolved = match self.resolve(path.as_ref()) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            resolved => resolved?,
        };
        let full = self.root.join(resolved);
        let entries = fs::read_dir(&full).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|cause| Error::Read { path: full, cause })?;
        // A name that is not UTF-8 is none that the kernel gives to what is looked for here.
        let mut names: Vec<_> =
            entries.into_iter().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The path with all links followed by hand, still relative to the root.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, Error> {
        let refused = || Error::Link { path: self.root.join(path) };
        let mut todo = VecDeque::new();
        prepend(&mut todo, path).ok_or_else(refused)?;
        let (mut done, mut links) = (PathBuf::new(), 0);
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                if !done.pop() {
                    return Err(refused());
                }
                continue;
            }
            done.push(name);
            let full = self.root.join(&done);
            let read = |cause| Error::Read { path: full.clone(), cause };
            if fs::symlink_metadata(&full).map_err(read)?.is_symlink() {
                links += 1;
                let target = fs::read_link(&full).map_err(read)?;
                if links > MAX_LINKS || prepend(&mut todo, &target).is_none() {
                    return Err(refused());
                }
                done.pop();
            }
        }
        Ok(done)
    }

    pub fn malformed(&self, path: impl AsRef<Path>, text: &str, expected: &str) -> Error {
        Error::Malformed {
            path: self.root.join(path),
            text: text.chars().take(80).collect(),
            expected: expected.to_owned(),
        }
    }
}

/// Puts the components of `path` before those still to do; `None` if it is absolute.
fn prepend(todo: &mut VecDeque<OsString>, path: &Path) -> Option<()> {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => todo.push_front(name.to_owned()),
            Component::ParentDir => todo.push_front("..".into()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(())
}

/// The text if the object may hold it: of a limited length, without control characters and the like.
pub fn plain(text: &str, most: usize) -> Option<&str> {
    let fits = text.len() <= most && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    fits.then_some(text)
}

/// The value, or a note on why there is none.
pub fn noted<T>(result: Result<T, Error>, notes: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| notes.push(error.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn follows_links_within_the_root_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("sys");
        fs::create_dir_all(root.join("devices/a")).unwrap();
        fs::create_dir_all(root.join("bus")).unwrap();
        fs::write(root.join("devices/a/class"), "0x030200\n").unwrap();
        fs::write(dir.path().join("secret"), "no").unwrap();
        symlink("../devices/a", root.join("bus/a")).unwrap();
        symlink("../../secret", root.join("bus/out")).unwrap();
        symlink(dir.path().join("secret"), root.join("bus/absolute")).unwrap();
        symlink("circle", root.join("bus/circle")).unwrap();

        let tree = Tree::open(&root, "--sysfs-root").unwrap();
        assert_eq!(tree.read("bus/a/class").unwrap(), "0x030200");
        assert_eq!(tree.resolve(Path::new("bus/a")).unwrap(), Path::new("devices/a"));
        for name in ["bus/out", "bus/absolute", "bus/circle", "../secret"] {
            assert!(matches!(tree.read(name), Err(Error::Link { .. })), "{name}");
        }
        assert!(tree.read("bus/none").is_err_and(|e| e.is_not_found()));
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("long"), "1".repeat(70_000)).unwrap();
        let tree = Tree::open(dir.path(), "--sysfs-root").unwrap();
        let error = tree.read("long").unwrap_err().to_string();
        assert!(error.ends_with("long: longer than 65536 bytes"), "{error}");
    }
}
