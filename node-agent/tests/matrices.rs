//! Links between GPUs against matrices that were published, as `nvidia-smi topo -m` prints them.

use muster_machines::mock::Stage;
use muster_node_agent::Sources;
use muster_node_agent::reader::Reader;

/// `matrix` has a row per GPU, and a column per GPU.
#[track_caller]
fn check(machine: &str, matrix: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let stage = Stage::build(machine, dir.path()).expect("a machine");
    let reading = Reader::once(Sources {
        sysfs_root: stage.sysfs(),
        proc_root: stage.procfs(),
        nvml_library: Some(stage.library()),
    })
    .expect("roots");
    let rows = matrix.lines().map(str::trim).filter(|line| !line.is_empty());
    let published: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(reading.hardware.gpus.len(), published.len());
    assert_eq!(reading.hardware.links.len(), published.len() * (published.len() - 1) / 2);
    for link in &reading.hardware.links {
        let (a, b) = (link.a as usize, link.b as usize);
        let name = match link.nvlinks {
            0 => link.path.to_string(),
            n => format!("NV{n}"),
        };
        assert_eq!(name, published[a][b], "GPU{a} and GPU{b}");
        assert_eq!(name, published[b][a], "the matrix is symmetric");
    }
}

fn all(gpus: usize, link: &str) -> String {
    let row = |i| (0..gpus).map(|j| if i == j { "X " } else { link }.to_owned() + " ").collect();
    (0..gpus).map(|i| -> String { row(i) }).map(|row: String| row + "\n").collect()
}

/// Of go-gpuallocator's test data, which agrees with NVIDIA/nccl#671.
#[test]
fn the_hybrid_cube_mesh_of_dgx_1v() {
    check(
        "dgx-1v",
        "  X NV1 NV1 NV2 NV2 SYS SYS SYS
         NV1   X NV2 NV1 SYS NV2 SYS SYS
         NV1 NV2   X NV2 SYS SYS NV1 SYS
         NV2 NV1 NV2   X SYS SYS SYS NV1
         NV2 SYS SYS SYS   X NV1 NV1 NV2
         SYS NV2 SYS SYS NV1   X NV2 NV1
         SYS SYS NV1 SYS NV1 NV2   X NV2
         SYS SYS SYS NV1 NV2 NV1 NV2   X",
    );
}

/// NVIDIA/nccl#1505, NVIDIA/nccl#1453, and the NVL72 of aws-ofi-nccl.
#[test]
fn all_alike_on_switches() {
    check("dgx-a100", &all(8, "NV12"));
    check("dgx-h100", &all(8, "NV18"));
    check("b200", &all(8, "NV18"));
    check("gb200", &all(4, "NV18"));
}

/// vllm-project/vllm#16336: the third GPU is off the fabric.
#[test]
fn one_gpu_off_the_fabric() {
    check(
        "b200-degraded",
        "   X NV18 NODE NV18 NV18 NV18 NV18 NV18
         NV18    X NODE NV18 NV18 NV18 NV18 NV18
         NODE NODE    X NODE  SYS  SYS  SYS  SYS
         NV18 NV18 NODE    X NV18 NV18 NV18 NV18
         NV18 NV18  SYS NV18    X NV18 NV18 NV18
         NV18 NV18  SYS NV18 NV18    X NV18 NV18
         NV18 NV18  SYS NV18 NV18 NV18    X NV18
         NV18 NV18  SYS NV18 NV18 NV18 NV18    X",
    );
}

/// NVIDIA/k8s-device-plugin#546: bridges between GPUs that are not neighbours.
#[test]
fn bridged_pairs() {
    check(
        "a100-bridges",
        "   X  SYS NV12  SYS  SYS  SYS  SYS  SYS
          SYS    X  SYS NV12  SYS  SYS  SYS  SYS
         NV12  SYS    X  SYS  SYS  SYS  SYS  SYS
          SYS NV12  SYS    X  SYS  SYS  SYS  SYS
          SYS  SYS  SYS  SYS    X NV12  SYS  SYS
          SYS  SYS  SYS  SYS NV12    X  SYS  SYS
          SYS  SYS  SYS  SYS  SYS  SYS    X NV12
          SYS  SYS  SYS  SYS  SYS  SYS NV12    X",
    );
}

/// warpem/miss-alignment#106.
#[test]
fn no_nvlink_at_all() {
    check(
        "l40s",
        "  X NODE  SYS  SYS
        NODE    X  SYS  SYS
         SYS  SYS    X NODE
         SYS  SYS NODE    X",
    );
}
