package whytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Lab is a recorded lab: the classes local, r1 with one and r3 with three replicas, each with a
// server of its class's name. All times are in milliseconds.
type Lab struct {
	// Commit is a commit's phases by class, Statement those of another statement; there are six of
	// these to a commit.
	Commit, Statement map[string]map[string]float64
	// PerSecond is how many commits there are, by class.
	PerSecond map[string]float64
	// Device is a write of the class's device, Trip and Service one of its replicas, r3-1 and so on.
	Device        map[string]float64
	Trip, Service map[string]float64
	// Disk is a write of the disk below a replica, by its name; "" is that of all others.
	Disk map[string]float64
	// Backend is the storage backend of a class; "b", which nothing knows, if it has none here.
	Backend map[string]string
	// Classic makes histograms classic ones.
	Classic bool
	// More adds other series.
	More func(r *Recording)
}

// Healthy is a lab in which all is well.
func Healthy() *Lab {
	return &Lab{
		Commit: map[string]map[string]float64{
			"local": {"cpu": 0.2, "runqueue": 0.1, "sync": 1.5, "wait": 0.4},
			"r1":    {"cpu": 0.2, "runqueue": 0.1, "sync": 3.5, "wait": 0.6},
			"r3":    {"cpu": 0.2, "runqueue": 0.1, "sync": 4.6, "wait": 0.8},
		},
		Statement: map[string]map[string]float64{
			"local": {"cpu": 0.1, "runqueue": 0.05, "sync": 0.2, "wait": 0.1},
			"r1":    {"cpu": 0.1, "runqueue": 0.05, "sync": 0.5, "wait": 0.1},
			"r3":    {"cpu": 0.1, "runqueue": 0.05, "sync": 0.7, "wait": 0.2},
		},
		PerSecond: map[string]float64{"local": 40, "r1": 40, "r3": 40},
		Device:    map[string]float64{"local": 0.6, "r1": 2.4, "r3": 4.4},
		Trip:      map[string]float64{"r1-1": 1.3, "r3-1": 1.5, "r3-2": 1.6, "r3-3": 1.4},
		Service:   map[string]float64{"r1-1": 0.9, "r3-1": 1, "r3-2": 1.1, "r3-3": 0.9},
		Disk:      map[string]float64{"": 0.5},
	}
}

// Record makes its series.
func (l *Lab) Record() *Recording {
	r := NewRecording()
	l.RecordInto(r)
	return r
}

// RecordInto makes its series beside those that are there, with the recording's label cluster.
func (l *Lab) RecordInto(r *Recording) {
	r.Classic = l.Classic
	for class, phases := range l.Commit {
		server := fmt.Sprintf(`server=%q,node="n",db_system="postgresql"`, class)
		volume := "v-" + class
		identity := fmt.Sprintf(`node="n",volume=%q,namespace="lab",persistentvolumeclaim="data-%s",storageclass=%q,backend=%q`, volume, class, class, cmp.Or(l.Backend[class], "b"))
		r.Gauge(fmt.Sprintf(`server:volume:info{server=%q,db_system="postgresql",%s}`, class, identity), 1)
		r.Gauge(fmt.Sprintf(`server:sync_volume:info{%s,volume=%q}`, server, volume), 1)
		r.Gauge(fmt.Sprintf(`plumbline_volume_info{%s,device="dev-%s",pod="%s-pg"}`, identity, class, class), 1)
		for command, of := range map[string]map[string]float64{"commit": phases, "update": l.Statement[class]} {
			n, sum := l.PerSecond[class], 0.0
			if command == "update" {
				n *= 6
			}
			for phase, ms := range of {
				sum += ms
				r.Counter(fmt.Sprintf(`plumbline_query_phase_seconds_total{%s,command=%q,phase=%q}`, server, command, phase), n*ms/1000)
			}
			r.Times(fmt.Sprintf(`plumbline_query_duration_seconds{%s,command=%q}`, server, command), n, sum/1000)
		}
		r.block("dev-"+class, 1.5*l.PerSecond[class], l.Device[class])
	}
	for name, ms := range l.Trip {
		class, number, _ := strings.Cut(name, "-")
		address := "127.0.0." + number + ":10000"
		at := fmt.Sprintf(`volume="v-%s",address=%q,backend="b"`, class, address)
		r.Gauge(fmt.Sprintf(`plumbline_volume_replica_info{volume="v-%s",replica=%q,address=%q,node="n",device="disk-%s"}`, class, name, address, name), 1)
		r.Times(fmt.Sprintf(`plumbline_replica_request_duration_seconds{%s,op="write"}`, at), 50, ms/1000)
		r.Times(fmt.Sprintf(`plumbline_replica_service_seconds{%s,op="write"}`, at), 50, l.Service[name]/1000)
		r.Counter(fmt.Sprintf(`plumbline_replica_last_ack_total{%s}`, at), 10)
		disk, ok := l.Disk[name]
		if !ok {
			disk = l.Disk[""]
		}
		r.block("disk-"+name, 60, disk)
	}
	for _, class := range []string{"r1", "r3"} {
		slowest := 0.0
		for name, ms := range l.Trip {
			if strings.HasPrefix(name, class) {
				slowest = max(slowest, ms)
			}
		}
		r.Times(fmt.Sprintf(`plumbline_volume_frontend_seconds{volume="v-%s",op="write"}`, class), 50, (slowest+0.7)/1000)
	}
	r.Gauge(`storageclass:control:info{node="n",storageclass="local"}`, 1)
	r.Gauge(`plumbline_volume_healthy_replicas{volume="v-r3"}`, 3)
	r.Gauge(`plumbline_volume_desired_replicas{volume="v-r3"}`, 3)
	if l.More != nil {
		l.More(r)
	}
}

// Clusters records labs as of several clusters whose names of nodes, volumes and servers are the same. It is given how
// long a commit of the class r3 syncs, by cluster; one named "" has no label.
func Clusters(sync map[string]float64) *Recording {
	r := NewRecording()
	for _, cluster := range slices.Sorted(maps.Keys(sync)) {
		l := Healthy()
		l.Commit["r3"]["sync"] = sync[cluster]
		l.More = func(r *Recording) {
			r.Gauge(`plumbline_feature_available{node="n",feature="statements"}`, 1)
			for class := range l.Commit {
				r.Gauge(fmt.Sprintf(`plumbline_server_info{node="n",server=%q,db_system="postgresql"}`, class), 1)
				r.Gauge(fmt.Sprintf(`plumbline_server_volume_info{node="n",server=%q,db_system="postgresql",device="dev-%s",volume="v-%s",purpose="data"}`, class, class, class), 1)
			}
		}
		r.Cluster = cluster
		l.RecordInto(r)
	}
	r.Cluster = ""
	return r
}

// block records writes of a device, of which a tenth is the queue.
func (r *Recording) block(device string, perSecond, ms float64) {
	for part, share := range map[string]float64{"total": 1, "queue": 0.1, "device": 0.9} {
		r.Times(fmt.Sprintf(`ebpf_exporter_blkio_%s_seconds{node="n",device=%q,op="write"}`, part, device), perSecond, ms*share/1000)
	}
}
