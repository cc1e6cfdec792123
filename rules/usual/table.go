package usual

// Local are the backends of volumes that are a disk of the node, or a folder on one.
var Local = []string{"disk", "hostpath", "local", "local-path", "localpv-device", "localpv-hostpath", "localpv-lvm"}

const rotating = "hard disks"

// Table is what is known. A figure is in it only if its source was read; new rows go into docs/usual.md by
// go test ./rules/usual -update.
var Table = []Row{
	{Local, 0, "NVMe SSDs for servers", "", Range{0.015, 0.100}, Range{0.047, 0.137}, Range{0.066, 0.100}, []Source{longhorn2020, vitastor2024, percona2019}},
	{Local, 0, "NVMe SSDs for desktops", "", Range{}, Range{1.643, 6.926}, Range{}, []Source{poder, percona2018, uzlov}},
	{Local, 0, "SATA SSDs for servers", "", Range{0.037, 0.037}, Range{}, Range{0.101, 0.101}, []Source{vitastor2020}},
	{Local, 0, "SATA SSDs for desktops", "", Range{0.066, 0.069}, Range{0.347, 0.899}, Range{0.160, 0.166}, []Source{uzlov, homeOps}},
	{Local, 0, rotating, "", Range{}, Range{10.45, 10.45}, Range{}, []Source{uzlov}},
	{Local, 0, "disks that sysperfeval does not name", "", Range{0.257, 0.393}, Range{}, Range{0.152, 0.207}, []Source{sysperfeval}},
	{Local, 0, "our lab, on one machine", "", Range{}, Range{0.32, 0.32}, Range{}, []Source{ours}},
	{append([]string{"ebs.csi.aws.com"}, Local...), 0, "Amazon EBS gp3", "", Range{0.803, 0.810}, Range{0, 5.14}, Range{0.500, 0.500}, []Source{longhorn2024, mtulio}},

	{[]string{"ebs.csi.aws.com"}, 0, "Amazon EBS io2 Block Express", "", Range{0, 0.5}, Range{}, Range{0, 0.5}, []Source{amazon}},
	{[]string{"azure-disk"}, 0, "Ultra Disks or Premium SSDs v2", "", Range{0, 1}, Range{}, Range{0, 1}, []Source{azure}},
	{[]string{"azure-disk"}, 0, "Premium or Standard SSDs", "", Range{0, 10}, Range{}, Range{0, 10}, []Source{azure}},
	{[]string{"azure-disk"}, 0, "Standard HDDs", "", Range{0, 10}, Range{}, Range{0, 20}, []Source{azure}},
	{[]string{"pd.csi.storage.gke.io"}, 0, "Hyperdisks", "", Range{0, 2}, Range{}, Range{0, 2}, []Source{google}},

	{[]string{"longhorn-v1"}, 1, "NVMe SSDs for servers", "10 Gbit/s", Range{0.500, 0.600}, Range{}, Range{0.500, 0.600}, []Source{longhorn2020}},
	{[]string{"longhorn-v1"}, 1, "disks that Dalibo does not name", "", Range{}, Range{0, 15.9}, Range{}, []Source{dalibo}},
	{[]string{"longhorn-v1"}, 1, "our lab, on one machine", "", Range{}, Range{1.00, 1.00}, Range{}, []Source{ours}},
	{[]string{"longhorn-v1"}, 3, "NVMe SSDs for servers", "10 Gbit/s", Range{0.500, 0.670}, Range{}, Range{0.500, 0.600}, []Source{longhorn2020}},
	{[]string{"longhorn-v1"}, 3, "Amazon EBS gp3", "10 Gbit/s", Range{2.027, 2.257}, Range{}, Range{0.740, 0.811}, []Source{longhorn2024}},
	{[]string{"longhorn-v1"}, 3, "disks that sysperfeval does not name", "", Range{1.045, 2.284}, Range{}, Range{0.576, 0.957}, []Source{sysperfeval}},
	{[]string{"longhorn-v1"}, 3, "disks that Dalibo does not name", "", Range{}, Range{0, 19.2}, Range{}, []Source{dalibo}},
	{[]string{"longhorn-v1"}, 3, "our lab, on one machine", "", Range{}, Range{1.23, 1.23}, Range{}, []Source{ours}},
	{[]string{"longhorn-v2"}, 1, "Amazon EBS volumes", "", Range{0.942, 1.042}, Range{}, Range{0.636, 0.732}, []Source{longhorn2025}},
	{[]string{"longhorn-v2"}, 3, "Amazon EBS volumes", "", Range{1.037, 1.083}, Range{}, Range{0.638, 0.646}, []Source{longhorn2025}},

	{[]string{"ceph-rbd"}, 1, "our lab, on one machine", "", Range{}, Range{2.09, 2.09}, Range{}, []Source{ours}},
	{[]string{"ceph-rbd"}, 2, "SATA SSDs for servers", "25 Gbit/s", Range{1, 1}, Range{}, Range{0.570, 0.570}, []Source{vitastor2020}},
	{[]string{"ceph-rbd"}, 3, "NVMe SSDs for servers", "100 Gbit/s", Range{0.400, 0.421}, Range{0.416, 0.421}, Range{0.130, 0.130}, []Source{cephMarch, cephNovember}},
	{[]string{"ceph-rbd"}, 3, "NVMe SSDs for desktops", "", Range{5.399, 6.362}, Range{}, Range{0.054, 0.120}, []Source{homeOps}},
	{[]string{"portworx"}, 0, "Amazon EBS gp2", "", Range{0.517, 0.523}, Range{}, Range{1.297, 1.337}, []Source{bigBang}},
}

var (
	amazon       = Source{"Amazon EBS, user guide: optimization (designed averages, 16 KiB)", "read 2026-11-28", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-optimization.html"}
	azure        = Source{"Azure managed disk types (designed latencies)", "2026-08-11", "https://learn.microsoft.com/azure/virtual-machines/disks-types"}
	bigBang      = Source{"Big Bang, Kubernetes storage options: dbench, Portworx 2.6", "2021-04-29", "https://github.com/rjferguson21/big-bang/tree/5285b06907e3151ad2a0fb94df9e4b2ca791419e/docs/k8s-storage"}
	cephMarch    = Source{"Ceph Reef freeze, part 1: RBD performance (fio, 4 KB, O_SYNC and O_DSYNC)", "2023-03-27", "https://ceph.io/en/news/blog/2023/reef-freeze-rbd-performance/"}
	cephNovember = Source{"Ceph Reef encryption performance (fio, 4 KB, one at a time)", "2023-11-16", "https://ceph.io/en/news/blog/2023/ceph-encryption-performance/"}
	dalibo       = Source{"Dalibo: CloudNativePG on Longhorn (a whole transaction of one pgbench client)", "2025-02-13", "https://blog.dalibo.com/2025/02/13/cnpg-3.html"}
	google       = Source{"Google Cloud, optimize Hyperdisk (500 operations a second of 16 KB, one at a time)", "read 2026-11-28", "https://cloud.google.com/compute/docs/disks/optimize-hyperdisk"}
	homeOps      = Source{"unleashurgeek/home-ops: kbench, Crucial MX500, Samsung 990 Pro", "2025-03-04", "https://github.com/unleashurgeek/home-ops/blob/main/logs/kube-fio-bench.md"}
	longhorn2020 = Source{"Performance and Scalability Report for Longhorn v1.0 (AWS c5d.2xlarge, dbench)", "2020-08-12", "https://longhorn.io/blog/performance-scalability-report-aug-2020/"}
	longhorn2024 = Source{"Longhorn 1.6.0, reference setup: public cloud, medium nodes (kbench, up to 12 volumes)", "2024-02-08", "https://github.com/longhorn/longhorn/blob/master/scalability/reference-setup-performance-scalability-and-sizing-guidelines/public-cloud/medium-node-spec.md"}
	longhorn2025 = Source{"Longhorn, V2 disk size aggregation (AWS c5.xlarge, kbench)", "2025-12-23", "https://longhorn.io/blog/20251223-v2-disk-size-aggregation/"}
	mtulio       = Source{"mtulio/openshift-cluster-benchmark-lab: fio's fdatasync on gp3, 99th percentiles", "2021-10-05", "https://github.com/mtulio/openshift-cluster-benchmark-lab"}
	ours         = Source{"Our lab on one machine: median commit, nearly all of it a sync (tests/RESULTS.md, predictions in a lab)", "2026-11-26", "../tests/RESULTS.md"}
	percona2018  = Source{"Percona: why consumer SSD reviews are useless for databases (Samsung 960 Pro)", "2018-07-18", "https://www.percona.com/blog/2018/07/18/why-consumer-ssd-reviews-are-useless-for-database-performance-use-case/"}
	percona2019  = Source{"Percona: update on fsync performance (Optane P4800X, P3700)", "2019-09-19", "https://www.percona.com/blog/2019/09/19/update-on-fsync-performance/"}
	poder        = Source{"Tanel Poder: pg_test_fsync for low latency writes (Samsung 990 Pro)", "2025-05-27", "https://tanelpoder.com/posts/using-pg-test-fsync-for-testing-low-latency-writes"}
	sysperfeval  = Source{"sysperfeval: fio, 8 KB, 1 to 8 jobs", "2024-12-11", "https://github.com/deutschj/sysperfeval"}
	uzlov        = Source{"d-uzlov/k8s-homelab: fio's fdatasync, 4 KB (hard disks: six, ZFS RAID-Z2)", "2023-07-04", "https://github.com/d-uzlov/k8s-homelab/blob/master/docs/test-database/test-fsync.md"}
	vitastor2020 = Source{"Vitastor, comparison with Ceph 15.2.4 (Intel D3-S4510, fio, 4 KB)", "2020-09-17", "https://github.com/vitalif/vitastor/blob/master/docs/performance/comparison1.en.md"}
	vitastor2024 = Source{"Vitastor, benchmark of 1.3.1: raw drives (Samsung PM9A3, fio, 4 KB)", "2024-03-23", "https://github.com/vitalif/vitastor/blob/master/docs/performance/bench2.en.md"}
)
