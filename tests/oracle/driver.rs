//! Talks to one oracle process: questions go to its standard input, one per
//! line, answers come back in their order.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::binary::{Program, binary};
use crate::generate::State;

const PROGRAM: Program = Program {
    name: "oracle",
    asks: "kube-scheduler",
    sources: &[
        "go.mod",
        "go.sum",
        "main.go",
        "cluster.go",
        "scheduler.go",
        "explain.go",
        "preemption.go",
    ],
};

pub(crate) struct Oracle {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    pub(crate) fn start() -> Result<Self> {
        let path = binary(&PROGRAM)?;
        let mut child = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", path.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::with_capacity(1 << 20, output.context("no output")?);
        Ok(Self { child, input: input.map(|i| BufWriter::with_capacity(1 << 20, i)), output })
    }

    /// The answer to each question. An answer is an explanation, a list of
    /// them under `results`, or an `error`.
    pub(crate) fn ask(&mut self, questions: &[Value]) -> Result<Vec<Value>> {
        let input = self.input.as_mut().context("the oracle is stopped")?;
        let output = &mut self.output;
        // Both pipes are finite: write and read at the same time.
        thread::scope(|scope| {
            let writer = scope.spawn(move || -> Result<()> {
                for question in questions {
                    serde_json::to_writer(&mut *input, question)?;
                    input.write_all(b"\n")?;
                }
                Ok(input.flush()?)
            });
            let mut answers = Vec::with_capacity(questions.len());
            let mut line = String::new();
            for question in questions {
                line.clear();
                if output.read_line(&mut line).context("read the oracle's answer")? == 0 {
                    bail!("the oracle ended early");
                }
                let answer: Value = serde_json::from_str(&line)?;
                ensure!(answer["id"] == question["id"], "answers are out of order");
                answers.push(answer);
            }
            match writer.join() {
                Ok(written) => written.context("write to the oracle")?,
                Err(_) => bail!("the oracle's writer panicked"),
            }
            Ok(answers)
        })
    }

    /// The answer to one question.
    pub(crate) fn ask_one(&mut self, question: Value) -> Result<Value> {
        self.ask(&[question])?.pop().context("no answer")
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The line that asks about the first pod of a state.
pub(crate) fn question(id: usize, state: &State) -> Value {
    json!({
        "id": id,
        "objects": state.objects,
        "config": state.config,
        "pod": state.pods.first(),
    })
}

/// The line that asks about all pods of a state one after the other, each
/// placed where the caller has placed it ("" leaves it waiting).
pub(crate) fn sequence_question(id: usize, state: &State, assume: &[String]) -> Value {
    json!({
        "id": id,
        "objects": state.objects,
        "config": state.config,
        "sequence": state.pods,
        "assume": assume,
    })
}
