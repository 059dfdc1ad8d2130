//! A directory with all that a machine is for the agent: `sys`, `proc` and
//! `libnvidia-ml.so.1`, with the file of the machine and that of its faults beside it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::{Faults, Machine, files, tree};

/// The environment variable that names the machine file; without it the mock reads
/// `machine.yaml` beside itself.
pub const MACHINE: &str = "NVML_MOCK_MACHINE";
/// The same for the faults, `faults.yaml`.
pub const FAULTS: &str = "NVML_MOCK_FAULTS";
const LIBRARY: &str = "libnvml_mock.so";

/// A machine in a directory.
#[derive(Clone, Debug)]
pub struct Stage {
    dir: PathBuf,
}

impl Stage {
    /// Writes everything of a built-in machine into a directory. Without driver there is
    /// no library, as on such a machine.
    ///
    /// # Errors
    ///
    /// If there is no such machine, or no mock beside the running test.
    pub fn build(name: &str, dir: &Path) -> io::Result<Self> {
        let text =
            files::text(name).ok_or_else(|| io::Error::other(format!("no machine {name}")))?;
        let machine = Machine::parse(text).map_err(io::Error::other)?;
        tree::write(&machine, dir)?;
        fs::write(dir.join("machine.yaml"), text)?;
        let stage = Self { dir: dir.to_owned() };
        stage.set(&Faults::default())?;
        if machine.driver.is_some() {
            fs::copy(library()?, stage.library())?;
        }
        Ok(stage)
    }

    #[must_use]
    pub fn sysfs(&self) -> PathBuf {
        self.dir.join("sys")
    }

    #[must_use]
    pub fn procfs(&self) -> PathBuf {
        self.dir.join("proc")
    }

    /// The library; the directory can also be put into `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.dir.join("libnvidia-ml.so.1")
    }

    /// Puts faults into force.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set(&self, faults: &Faults) -> io::Result<()> {
        faults.write(&self.dir.join("faults.yaml"))
    }

    /// Makes the library one of an older driver, that lacks these functions. To be called
    /// before it is loaded.
    ///
    /// # Errors
    ///
    /// If the library has no such function.
    pub fn without(&self, functions: &[&str]) -> io::Result<()> {
        let mut bytes = fs::read(self.library())?;
        for name in functions {
            // The name ends with a zero byte and begins after one; a changed letter is
            // another name.
            let text = [b"\0", name.as_bytes(), b"\0"].concat();
            let at = bytes.windows(text.len()).position(|w| w == text);
            let at = at.ok_or_else(|| io::Error::other(format!("no function {name}")))?;
            bytes[at + 1] = b'x';
        }
        fs::remove_file(self.library())?;
        fs::write(self.library(), bytes)
    }
}

/// The mock that cargo has built for the running test or program: beside it, or one above.
///
/// # Errors
///
/// If it is not there: the test's package needs `nvml-mock` among its dev-dependencies.
pub fn library() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let mut places = program.ancestors().skip(1).take(2);
    let found = places.find_map(|dir| {
        [dir.join(LIBRARY), dir.join("deps").join(LIBRARY)].into_iter().find(|p| p.exists())
    });
    found.ok_or_else(|| io::Error::other(format!("{LIBRARY} is not beside {}", program.display())))
}
