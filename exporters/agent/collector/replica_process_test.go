package collector

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

func TestReplicaCommandLine(t *testing.T) {
	hostname := func() string { return "pvc-7-jiva-rep-2" }
	for _, c := range []struct {
		name, line string
		want       *replicaProcess
		problem    string
	}{
		{
			name: "engine on one machine",
			line: "longhorn-engine --engine-instance-name v-e-0 controller --listen 127.0.0.1:9501 --size 4g --current-size 4g --frontend socket --disableRevCounter --replica tcp://127.0.1.1:10000 --replica tcp://127.0.1.2:10000 v",
			want: &replicaProcess{Backend: "longhorn-v1", Role: replica.Engine, Volume: "v", Instance: "v-e-0", Replicas: []string{"127.0.1.1:10000", "127.0.1.2:10000"}},
		},
		{
			name: "engine on a cluster, volume first",
			line: "/engine-binaries/longhornio-longhorn-engine-v1.8.0/longhorn --engine-instance-name pvc-1-e-0 controller pvc-1 --frontend tgt-blockdev --disableRevCounter --size 1073741824 --current-size 0 --engine-replica-timeout 8 --file-sync-http-client-timeout 30 --replica tcp://10.42.0.5:10000 --listen 0.0.0.0:10010",
			want: &replicaProcess{Backend: "longhorn-v1", Role: replica.Engine, Volume: "pvc-1", Instance: "pvc-1-e-0", Replicas: []string{"10.42.0.5:10000"}},
		},
		{
			name: "engine without a frontend that speaks the wire",
			line: "longhorn-engine controller --frontend rest --size 4g v",
			want: &replicaProcess{Backend: "longhorn-v1", Role: replica.Engine, Volume: "v", UnseenFrontend: true},
		},
		{
			name: "replica",
			line: "/bin/longhorn --volume-name pvc-1 replica /host/var/lib/longhorn/replicas/pvc-1-abc --size 1073741824 --replica-instance-name pvc-1-r-abc --disableRevCounter --listen 0.0.0.0:10000",
			want: &replicaProcess{Backend: "longhorn-v1", Role: replica.Replica, Volume: "pvc-1", Instance: "pvc-1-r-abc", Directory: "/host/var/lib/longhorn/replicas/pvc-1-abc", Host: "0.0.0.0", Port: 10000},
		},
		{
			name: "replica with strict-local data",
			line: "longhorn --volume-name=v replica --data-server-protocol=unix --listen=[::1]:10020 --sync-agent /data",
			want: &replicaProcess{Backend: "longhorn-v1", Role: replica.Replica, Volume: "v", Directory: "/data", Host: "::1", Port: 10020, Unix: true},
		},
		{
			name: "Jiva's engine",
			line: "longhorn controller --frontend gotgt --clusterIP 10.0.0.9 pvc-7",
			want: &replicaProcess{Backend: "jiva", Role: replica.Engine, Volume: "pvc-7", UnseenFrontend: true},
		},
		{
			name: "Jiva's replica, named by its pod",
			line: "longhorn replica --frontendIP 10.0.0.9 --size 5G /openebs",
			want: &replicaProcess{Backend: "jiva", Role: replica.Replica, Volume: "pvc-7", Directory: "/openebs", Host: "localhost", Port: 9502},
		},
		{name: "sync agent", line: "longhorn-engine --volume-name v sync-agent --listen 127.0.0.1:10002 --replica 127.0.0.1:10000"},
		{name: "short command", line: "longhorn --url http://127.0.0.1:9501 ls-replica"},
		{name: "other Longhorn program", line: "longhorn-manager -d daemon"},
		{name: "another program's word", line: "mongod replica --listen x"},
		{name: "nothing", line: ""},
		{name: "engine without a volume", line: "longhorn-engine controller --frontend socket", problem: "without a volume name"},
		{name: "replica without a directory", line: "longhorn --volume-name v replica --listen 1.2.3.4:10000", problem: "without a directory"},
		{name: "replica with a strange address", line: "longhorn --volume-name v replica --listen nowhere /d", problem: "--listen"},
		{name: "replica on the last port", line: "longhorn --volume-name v replica --listen 1.2.3.4:65535 /d", problem: "no port with another one after it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := dataconnProcess(strings.Fields(c.line), hostname)
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Fatalf("error %v, want one about %q", err, c.problem)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

// A socket that cannot be looked at must not be taken for a closed one.
func TestReplicaOpenSockets(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "7", "fd")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"0": "/dev/null", "3": "socket:[4711]", "4": "pipe:[12]", "5": "socket:[4712]"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := openSockets(root, 7)
	if want := map[uint64]bool{4711: true, 4712: true}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("open are %v, %v; want %v", got, err, want)
	}
	// No link, as good as one that may not be read.
	if err := os.WriteFile(filepath.Join(dir, "6"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := openSockets(root, 7); err == nil {
		t.Errorf("open are %v although one cannot be read; want an error", got)
	}
}

func TestReplicaReadProcess(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat := "(strange) name) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0 4711 1 1 1\n"
	write("7/stat", "7 "+stat)
	write("7/cmdline", "longhorn\x00replica\x00--frontendIP\x00x\x00/openebs\x00")
	write("7/root/etc/hostname", "pvc-9-jiva-rep-0\n")
	write("8/stat", "8 "+stat)
	write("8/cmdline", "")
	write("9/stat", "9 "+stat)
	write("9/cmdline", "longhorn\x00controller\x00")

	p, start, err := readReplicaProcess(root, 7, dataconnProcess)
	if err != nil || start != 4711 || p == nil || p.Volume != "pvc-9" {
		t.Errorf("process 7 is %+v since %d, %v", p, start, err)
	}
	for _, pid := range []int{8, 1234} {
		if p, _, err := readReplicaProcess(root, pid, dataconnProcess); p != nil || err != nil {
			t.Errorf("process %d is %+v, %v; want nothing", pid, p, err)
		}
	}
	if _, _, err := readReplicaProcess(root, 9, dataconnProcess); err == nil || !strings.Contains(err.Error(), "process 9") {
		t.Errorf("error %v does not name process 9", err)
	}
}
