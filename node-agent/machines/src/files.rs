//! The machines that are built in.

macro_rules! machines {
    ($($name:literal,)*) => {
        /// Their names.
        pub const NAMES: &[&str] = &[$($name,)*];

        /// The text of a machine's file.
        #[must_use]
        pub fn text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../files/", $name, ".yaml"))),)*
                _ => None,
            }
        }
    };
}

machines! {
    "a100-bridges",
    "b200",
    "b200-degraded",
    "dgx-1v",
    "dgx-a100",
    "dgx-h100",
    "gb200",
    "h100-7-of-8",
    "l40s",
    "mig",
    "no-driver",
    "no-gpu",
    "vm",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, tree};

    #[test]
    fn every_file_is_a_machine_with_a_tree() {
        for name in NAMES {
            let machine = Machine::parse(text(name).unwrap());
            let machine = machine.unwrap_or_else(|error| panic!("{name}: {error}"));
            let dir = tempfile::tempdir().unwrap();
            tree::write(&machine, dir.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
            for gpu in &machine.gpus {
                let link = dir.path().join("sys/bus/pci/devices").join(gpu.address());
                assert!(link.join("class").exists(), "{name}: {}", gpu.path);
            }
        }
    }
}
