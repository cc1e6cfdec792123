package matrix

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// A class has other servers and volumes than those that were measured, and slower ones: a run's layers are those of its
// own, or else there are none, and the row has what to do.
func TestWhoseLayers(t *testing.T) {
	lab := whytest.Healthy()
	lab.More = func(r *whytest.Recording) {
		// A slower database on the class r3, a machine's own server on no volume, and the volume of the pod that runs
		// the matrix.
		other := `node="n",volume="v-other",namespace="others",persistentvolumeclaim="data-other",storageclass="r3",backend="b"`
		r.Gauge(`server:volume:info{server="other",db_system="postgresql",`+other+`}`, 1)
		r.Gauge(`plumbline_volume_info{`+other+`,device="dev-other",pod="other-pg"}`, 1)
		for server, phases := range map[string]map[string]float64{"other": {"cpu": 0.2, "wait": 90}, "machine": {"runqueue": 5, "cpu": 0.5}} {
			sum := 0.0
			for phase, ms := range phases {
				r.Counter(`plumbline_query_phase_seconds_total{server="`+server+`",node="n",db_system="postgresql",command="commit",phase="`+phase+`"}`, 40*ms/1000)
				sum += ms
			}
			r.Times(`plumbline_query_duration_seconds{server="`+server+`",node="n",db_system="postgresql",command="commit"}`, 40, sum/1000)
		}
		r.Gauge(`plumbline_server_info{server="machine",node="n",db_system="postgresql"}`, 1)
		r.Gauge(`server:address:info{server="local",node="n",address="10.0.0.1",port="5432"}`, 1)
		r.Gauge(`server:address:info{server="r3",node="n",address="10.0.0.3",port="5432"}`, 1)
		own := `node="n",volume="v-own",namespace="plumbline",persistentvolumeclaim="matrix-wal-x7-r3",storageclass="r3",backend="b"`
		r.Gauge(`plumbline_volume_info{`+own+`,device="dev-own"}`, 1)
		// A database of the same class in the same namespace.
		beside := `node="n",volume="v-beside",namespace="plumbline",persistentvolumeclaim="pg",storageclass="r3",backend="b"`
		r.Gauge(`server:volume:info{server="beside",db_system="postgresql",`+beside+`}`, 1)
		r.Gauge(`plumbline_volume_info{`+beside+`,device="dev-beside"}`, 1)
		r.Times(`ebpf_exporter_blkio_total_seconds{node="n",device="dev-own",op="write"}`, 100, 0.005)
		r.Times(`ebpf_exporter_blkio_queue_seconds{node="n",device="dev-own",op="write"}`, 100, 0.0001)
		r.Times(`ebpf_exporter_blkio_device_seconds{node="n",device="dev-own",op="write"}`, 100, 0.0049)
	}
	pgbench, fio := Step{Pgbench: &Pgbench{Clients: 4, Scale: 1}}, Step{FIO: &FIO{RW: "write", Jobs: 1}}
	selects := Step{Pgbench: &Pgbench{Clients: 4, Scale: 1, Builtin: "select-only"}}
	for name, c := range map[string]struct {
		step   Step
		target Target
		at     string // the pod, or the address that answered
		limit  string
		words  string // of the limit's reason
		mean   float64
	}{
		// Its server commits, too, as it has a canary: seven statements of 1.714 ms in the mean.
		"a run that only reads":             {selects, Target{StorageClass: "r3", Server: "r3"}, "", limitSeveral, "of a statement's time", 0.001714},
		"a server by its address":           {pgbench, Target{StorageClass: "r3"}, "10.0.0.3:5432", limitSeveral, "way to the engine 30 %", 0.0057},
		"its address before its name":       {pgbench, Target{StorageClass: "r3", Server: "other"}, "10.0.0.3:5432", limitSeveral, "way to the engine 30 %", 0.0057},
		"an unknown address, one server":    {pgbench, Target{StorageClass: "r1"}, "10.0.0.9:5432", limitSeveral, "engine 36 %", 0.0044},
		"an unknown address, another known": {pgbench, Target{StorageClass: "local"}, "10.0.0.9:5432", limitUnknown, "local, is at 10.0.0.1:5432: give the target's server", 0},
		"an unknown address, several":       {pgbench, Target{StorageClass: "r3"}, "10.0.0.9:5432", limitUnknown, "give the target's server", 0},
		"a failover during the run":         {pgbench, Target{StorageClass: "r3"}, "moved", limitUnknown, "another server answered after the run", 0},
		"a class of several servers":        {pgbench, Target{StorageClass: "r3"}, "", limitUnknown, "3 servers or volumes of the storage class r3, and which of them this run was on is not known: give the target's server", 0},
		"a named one of them":               {pgbench, Target{StorageClass: "r3", Server: "r3"}, "", limitSeveral, "way to the engine 30 %", 0.0057},
		"the other one":                     {pgbench, Target{StorageClass: "r3", Server: "other"}, "", limitSessions, "other sessions 100 %", 0.0902},
		"a server on no volume":             {pgbench, Target{StorageClass: "machine", Server: "machine"}, "", limitNode, "CPU of the database's node 91 %", 0.0055},
		"a server that is not there":        {pgbench, Target{StorageClass: "r3", Server: "gone"}, "", limitUnknown, "server gone: nothing is known of it", 0},
		"a class of one server":             {pgbench, Target{StorageClass: "r1"}, "", limitSeveral, "engine 36 %", 0.0044},
		"fio in a pod":                      {fio, Target{StorageClass: "r3"}, "plumbline/matrix-wal-x7", limitDevice, "device 100 %", 0.005},
		"fio in no pod":                     {fio, Target{StorageClass: "r3"}, "", limitUnknown, "in a pod, give --pod", 0},
		"fio in another pod":                {fio, Target{StorageClass: "r3"}, "plumbline/matrix-wal-y8", limitUnknown, "pod plumbline/matrix-wal-y8 has 0 claims of class r3", 0},
	} {
		runner := Runner{Prometheus: lab.Record(), Log: slog.New(slog.DiscardHandler)}
		report := Report{Repeat: 1, Targets: []Target{c.target}, Rows: []Row{{Step: "s", StorageClass: c.target.StorageClass, Round: 1,
			Result: &result.Result{}, CPUIdle: 0.7, Began: whytest.End.Add(-time.Minute), Ended: whytest.End, step: c.step}}}
		switch {
		case c.step.FIO != nil:
			runner.Pod = c.at
		case c.at == "moved":
			report.Rows[0].moved = "another server answered after the run than before it"
		default:
			report.Rows[0].address = c.at
		}
		runner.queryLayers(t.Context(), &report)
		row := report.Rows[0]
		mean := 0.0
		if row.Layers != nil {
			mean = row.Layers.Mean
		}
		if row.Limit.What != c.limit || !strings.Contains(row.Limit.Because, c.words) || mean < 0.98*c.mean || mean > 1.02*c.mean {
			t.Errorf("%s: %+v, mean %v s; want %s because of %q, %v s", name, *row.Limit, mean, c.limit, c.words, c.mean)
		}
	}
}
