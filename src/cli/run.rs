//! `muster run`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, ValueEnum};

use crate::config::{Configuration, GoDuration, LeaderElection};
use crate::plugin::Registry;
use crate::run::{Follow, LOOK, Options, run};
use crate::serve::ServeConfig;
use crate::shard::NodeSelector;

/// Threads of the runtime for the lease and the HTTP surface; watches, cycles
/// and writes have threads of their own.
const RUNTIME_THREADS: usize = 1;

/// Flags of `muster run`. Names follow kube-scheduler where it has one.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Without
    /// one there is a single profile.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How to reach the API server; default: the pod's own service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Schedule pods with this spec.schedulerName; may be repeated. Only
    /// without --config [default: muster].
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    scheduler_name: Vec<String>,

    /// Look after the nodes that this label selector selects, in kubectl's
    /// syntax (for example 'pool=a,zone in (x,y)'), as if there were no others
    /// [default: all nodes].
    #[arg(long, value_name = "SELECTOR")]
    node_selector: Option<NodeSelector>,

    #[command(flatten)]
    election: ElectionArgs,

    #[command(flatten)]
    serving: ServingArgs,

    /// Log verbosity, as in kube-scheduler: 5 adds the verdict on each node, 10
    /// each plugin's score.
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = crate::logging::DEFAULT_VERBOSITY)]
    verbosity: u8,

    /// Form of the log.
    #[arg(long, alias = "logging-format", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// Seed of the order among nodes of equal score.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// A pod that no event has woken is tried again after this time.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pod_max_in_unschedulable_pods_duration: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Leader election; each flag overrides the configuration file.
#[derive(Clone, Debug, clap::Args)]
struct ElectionArgs {
    /// Take part in an election before scheduling [default: true].
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,

    /// Name of the Lease.
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,

    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,

    /// Others wait this long after the last renewal they saw [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_lease_duration: Option<Duration>,

    /// The leader gives up when it could not renew for this long [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_renew_deadline: Option<Duration>,

    /// Between two attempts to take or renew the Lease [default: 2s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_retry_period: Option<Duration>,
}

/// The HTTPS surface.
#[derive(Clone, Debug, clap::Args)]
struct ServingArgs {
    /// Port of /livez, /readyz, /metrics, /configz and /debug; 0 switches it off.
    #[arg(long, value_name = "PORT", default_value_t = 10259)]
    secure_port: u16,

    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    bind_address: IpAddr,

    /// Directory of the serving certificate; one is made if it has none.
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,

    /// Serving certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// Key of the serving certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = GoDuration::parse(text).map_err(|e| format!("{e}; write for example 15s"))?;
    parsed.to_std().ok_or_else(|| "must not be negative; write for example 15s".to_owned())
}

pub(super) fn main(args: Args, registry: &Registry) -> Result<ExitCode> {
    crate::logging::init(args.verbosity, args.log_format == LogFormat::Json);
    let options = args.options(registry)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let code = runtime.block_on(run(options, registry));
    // Nothing is worth waiting for any more.
    runtime.shutdown_background();
    code
}

impl Args {
    fn options(self, registry: &Registry) -> Result<Options> {
        let mut configuration =
            Configuration::load_with(self.config.as_deref(), registry.plugins())?;
        for warning in &configuration.warnings {
            tracing::warn!("{warning}");
        }
        let read = configuration.clone();
        if !self.scheduler_name.is_empty() {
            set_names(&mut configuration, self.scheduler_name)?;
        }
        self.election.apply(&mut configuration.leader_election)?;
        let in_file = configuration.client_connection.kubeconfig.clone();
        let max_in_unschedulable = self.pod_max_in_unschedulable_pods_duration.as_secs();
        Ok(Options {
            kubeconfig: self.kubeconfig.or(in_file),
            node_selector: self.node_selector,
            serve: self.serving.config(),
            seed: self.seed,
            max_in_unschedulable_secs: i64::try_from(max_in_unschedulable).unwrap_or(i64::MAX),
            follow: configuration.file.is_some().then_some(Follow { read, every: LOOK }),
            configuration,
        })
    }
}

/// One default profile per name.
fn set_names(configuration: &mut Configuration, names: Vec<String>) -> Result<()> {
    let mut profiles = Vec::with_capacity(names.len());
    for name in names {
        if name.is_empty() {
            bail!("--scheduler-name: must not be empty; give the schedulerName of your pods");
        }
        let mut profile = configuration.profiles.first().cloned().unwrap_or_default();
        profile.scheduler_name = name;
        if profiles.contains(&profile) {
            bail!(
                "--scheduler-name {}: given twice; name each profile once",
                profile.scheduler_name
            );
        }
        profiles.push(profile);
    }
    configuration.profiles = profiles;
    Ok(())
}

impl ElectionArgs {
    fn apply(self, election: &mut LeaderElection) -> Result<()> {
        fn set<T>(value: Option<T>, field: &mut T) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(self.leader_elect, &mut election.leader_elect);
        set(self.leader_elect_resource_name, &mut election.resource_name);
        set(self.leader_elect_resource_namespace, &mut election.resource_namespace);
        set(self.leader_elect_lease_duration, &mut election.lease_duration);
        set(self.leader_elect_renew_deadline, &mut election.renew_deadline);
        set(self.leader_elect_retry_period, &mut election.retry_period);
        if !election.leader_elect {
            return Ok(());
        }
        if election.lease_duration <= election.renew_deadline {
            bail!(
                "--leader-elect-lease-duration {:?} must be greater than \
                 --leader-elect-renew-deadline {:?}; raise the first or lower the second",
                election.lease_duration,
                election.renew_deadline
            );
        }
        // client-go's jitter factor: a late retry must still be in time.
        if election.renew_deadline <= election.retry_period.mul_f64(1.2) {
            bail!(
                "--leader-elect-renew-deadline {:?} must be greater than 1.2 times \
                 --leader-elect-retry-period {:?}; raise the first or lower the second",
                election.renew_deadline,
                election.retry_period
            );
        }
        if election.retry_period.is_zero() {
            bail!("--leader-elect-retry-period: must be greater than 0; write for example 2s");
        }
        Ok(())
    }
}

impl ServingArgs {
    fn config(self) -> Option<ServeConfig> {
        (self.secure_port != 0).then(|| ServeConfig {
            address: (self.bind_address, self.secure_port).into(),
            cert_dir: self.cert_dir,
            cert: self.tls_cert_file.zip(self.tls_private_key_file),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_shard_is_a_flag_and_a_wrong_one_is_refused_by_its_name() {
        let parse = |selector: &str| Run::try_parse_from(["run", "--node-selector", selector]);
        let options = parse("pool == a").unwrap().args.options(&Registry::default()).unwrap();
        assert_eq!(options.node_selector.unwrap().as_str(), "pool=a");
        let error = parse("pool=a b").unwrap_err().to_string();
        let expected = "invalid value 'pool=a b' for '--node-selector <SELECTOR>': found 'b', \
                        expected: ',' or the end; write for example";
        assert!(error.contains(expected), "{error}");
        let all = Run::try_parse_from(["run"]).unwrap().args;
        assert_eq!(all.options(&Registry::default()).unwrap().node_selector, None);
    }
}
