//! `muster completion` and `muster man`: what shells and `man` want to know.
//!
//! Owns the forms; both are made from the tree of commands, so they say what it says.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::print::print;

const EXAMPLES: &str = "\
Examples:
  source <(muster completion bash)
  muster completion zsh > \"${fpath[1]}/_muster\"
  # For kubectl muster: a file kubectl_complete-muster in the PATH
  muster completion kubectl > /usr/local/bin/kubectl_complete-muster
  chmod +x /usr/local/bin/kubectl_complete-muster";

/// Arguments of `muster completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionArgs {
    /// The shell, or kubectl
    shell: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
    /// A program kubectl_complete-muster, which completes kubectl muster
    Kubectl,
}

/// Arguments of `muster man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// A directory for a page of each command; without it the first page goes to standard output
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Arguments of `muster __complete`, which the program for kubectl calls.
#[derive(Debug, clap::Args)]
pub(super) struct CompleteArgs {
    /// The words after `kubectl muster`, the last one being typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Prints a completion script.
///
/// # Errors
///
/// If it cannot be written.
pub(super) fn completion(args: &CompletionArgs, tree: &mut clap::Command) -> Result<ExitCode> {
    let shell = match args.shell {
        Target::Bash => Shell::Bash,
        Target::Elvish => Shell::Elvish,
        Target::Fish => Shell::Fish,
        Target::PowerShell => Shell::PowerShell,
        Target::Zsh => Shell::Zsh,
        Target::Kubectl => {
            print("#!/bin/sh\nexec kubectl-muster __complete -- \"$@\"\n")?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let mut text = Vec::new();
    generate(shell, tree, "muster", &mut text);
    print(&String::from_utf8(text).context("a script that is no text")?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints pages of the manual.
///
/// # Errors
///
/// If they cannot be written.
pub(super) fn man(args: &ManArgs, tree: clap::Command) -> Result<ExitCode> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(tree).render(&mut page)?;
        print(&String::from_utf8(page).context("a page that is no text")?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let written = fs::create_dir_all(dir).and_then(|()| pages(tree, dir));
    let count = written.with_context(|| format!("cannot write to {}", dir.display()))?;
    println!("{}: {count} pages", dir.display());
    Ok(ExitCode::SUCCESS)
}

/// A page of each command, `muster-why.1` and the like.
fn pages(mut tree: clap::Command, dir: &std::path::Path) -> io::Result<usize> {
    tree.build();
    let mut left = vec![("muster".to_owned(), tree)];
    let mut count = 0;
    while let Some((name, command)) = left.pop() {
        let shown =
            command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        left.extend(shown.map(|c| (format!("{name}-{}", c.get_name()), c.clone())));
        let mut page = Vec::new();
        let title: &'static str = Box::leak(name.clone().into_boxed_str());
        Man::new(command.name(title)).render(&mut page)?;
        fs::write(dir.join(format!("{name}.1")), page)?;
        count += 1;
    }
    Ok(count)
}

/// Prints what the last word may become, as kubectl's plugins do: a word per line, then a
/// directive (4: no files).
///
/// # Errors
///
/// If it cannot be written.
pub(super) fn complete(args: &CompleteArgs, tree: &clap::Command) -> Result<ExitCode> {
    let (before, last) = match args.words.split_last() {
        Some((last, before)) => (before, last.as_str()),
        None => (&[][..], ""),
    };
    let text: String =
        candidates(before, last, tree).iter().map(|word| format!("{word}\n")).collect();
    print(&format!("{text}:4\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn candidates(before: &[String], last: &str, tree: &clap::Command) -> Vec<String> {
    let mut command = tree;
    let mut flag: Option<&clap::Arg> = None;
    for word in before {
        flag = None;
        if word.starts_with('-') {
            let named = |arg: &&clap::Arg| {
                let long = arg.get_long().is_some_and(|long| *word == format!("--{long}"));
                let short = arg.get_short().is_some_and(|short| *word == format!("-{short}"));
                (long || short) && arg.get_action().takes_values()
            };
            flag = command.get_arguments().find(named);
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        }
    }
    let mut words: Vec<String> = Vec::new();
    if let Some(flag) = flag {
        words.extend(flag.get_possible_values().iter().map(|v| v.get_name().to_owned()));
    } else if last.starts_with('-') {
        let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
        words.extend(flags.filter_map(clap::Arg::get_long).map(|long| format!("--{long}")));
    } else {
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        words.extend(shown.map(|c| c.get_name().to_owned()));
    }
    words.retain(|word| word.starts_with(last));
    words
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let (last, before) = words.split_last().unwrap();
        candidates(before, last, &Cli::command())
    }

    #[test]
    fn kubectl_completes_commands_flags_and_values() {
        assert_eq!(completed(&["wh"]), ["why"]);
        assert!(completed(&[""]).contains(&"queue".to_owned()));
        assert!(!completed(&[""]).contains(&"__complete".to_owned()));
        assert_eq!(completed(&["why", "--name"]), ["--namespace"]);
        assert_eq!(completed(&["why", "a", "-o", ""]), ["table", "wide", "json", "yaml"]);
        assert_eq!(completed(&["config", ""]), ["view"]);
    }

    #[test]
    fn scripts_and_pages_name_every_command() {
        let mut script = Vec::new();
        generate(Shell::Bash, &mut Cli::command(), "muster", &mut script);
        let script = String::from_utf8(script).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let count = pages(Cli::command(), dir.path()).unwrap();
        assert!(count > 10, "{count}");
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = command.get_name();
            assert!(script.contains(name), "{name} is not completed");
            let page = dir.path().join(format!("muster-{name}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        }
    }
}
