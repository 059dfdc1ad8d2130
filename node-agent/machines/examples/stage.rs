//! Puts a machine into a directory, to try the agent on hardware that is not there.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use muster_machines::files;
use muster_machines::mock::Stage;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, dir] = &args[..] else {
        eprintln!("usage: stage MACHINE DIR; machines: {}", files::NAMES.join(", "));
        return ExitCode::from(2);
    };
    let made = fs::create_dir_all(dir).and_then(|()| Stage::build(name, Path::new(dir)));
    match made {
        Ok(_) => {
            println!(
                "LD_LIBRARY_PATH={dir} muster-node-agent print --sysfs-root {dir}/sys --proc-root {dir}/proc"
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}; the mock is built by cargo build -p nvml-mock");
            ExitCode::FAILURE
        }
    }
}
