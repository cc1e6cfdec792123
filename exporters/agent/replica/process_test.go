package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
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
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "v", Instance: "v-e-0", Replicas: []string{"127.0.1.1:10000", "127.0.1.2:10000"}},
		},
		{
			name: "engine on a cluster, volume first",
			line: "/engine-binaries/longhornio-longhorn-engine-v1.8.0/longhorn --engine-instance-name pvc-1-e-0 controller pvc-1 --frontend tgt-blockdev --disableRevCounter --size 1073741824 --current-size 0 --engine-replica-timeout 8 --file-sync-http-client-timeout 30 --replica tcp://10.42.0.5:10000 --listen 0.0.0.0:10010",
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "pvc-1", Instance: "pvc-1-e-0", Replicas: []string{"10.42.0.5:10000"}},
		},
		{
			name: "engine without a frontend that speaks the wire",
			line: "longhorn-engine controller --frontend rest --size 4g v",
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "v", UnseenFrontend: true},
		},
		{
			name: "replica",
			line: "/bin/longhorn --volume-name pvc-1 replica /host/var/lib/longhorn/replicas/pvc-1-abc --size 1073741824 --replica-instance-name pvc-1-r-abc --disableRevCounter --listen 0.0.0.0:10000",
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "pvc-1", Instance: "pvc-1-r-abc", Directory: "/host/var/lib/longhorn/replicas/pvc-1-abc", Host: "0.0.0.0", Port: 10000},
		},
		{
			name: "replica of an encrypted volume, of Longhorn 1.12",
			line: "longhorn --volume-name v replica --listen 10.42.0.5:10000 --encrypted /host/var/lib/longhorn/replicas/v-1a2b3c4d",
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "v", Directory: "/host/var/lib/longhorn/replicas/v-1a2b3c4d", Host: "10.42.0.5", Port: 10000},
		},
		{
			name: "replica with strict-local data",
			line: "longhorn --volume-name=v replica --data-server-protocol=unix --listen=[::1]:10020 --sync-agent /data",
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "v", Directory: "/data", Host: "::1", Port: 10020, Unix: true},
		},
		{
			name: "replica of Longhorn 1.3, whose command line does not name the volume",
			line: "/host/var/lib/longhorn/engine-binaries/longhornio-longhorn-engine-v1.3.3/longhorn replica /host/var/lib/longhorn/replicas/pvc-1f0e-c0ed56fd --size 1073741824 --listen 0.0.0.0:10015",
			want: &replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "pvc-1f0e", Directory: "/host/var/lib/longhorn/replicas/pvc-1f0e-c0ed56fd", Host: "0.0.0.0", Port: 10015},
		},
		{
			name: "Jiva's engine",
			line: "longhorn controller --frontend gotgt --clusterIP 10.0.0.9 pvc-7",
			want: &replicaProcess{Backend: "jiva", Role: bpf.Engine, Volume: "pvc-7", UnseenFrontend: true},
		},
		{
			name: "Jiva's replica, named by its pod",
			line: "longhorn replica --frontendIP 10.0.0.9 --size 5G /openebs",
			want: &replicaProcess{Backend: "jiva", Role: bpf.Replica, Volume: "pvc-7", Directory: "/openebs", Host: "localhost", Port: 9502},
		},
		{name: "sync agent", line: "longhorn-engine --volume-name v sync-agent --listen 127.0.0.1:10002 --replica 127.0.0.1:10000", want: &replicaProcess{SyncAgent: true}},
		{name: "short command", line: "longhorn --url http://127.0.0.1:9501 ls-replica"},
		{name: "other Longhorn program", line: "longhorn-manager -d daemon"},
		{name: "another program's word", line: "mongod replica --listen x"},
		{name: "nothing", line: ""},
		{name: "engine without a volume", line: "longhorn-engine controller --frontend socket", problem: "without a volume name"},
		{name: "replica without a directory", line: "longhorn --volume-name v replica --listen 1.2.3.4:10000", problem: "without a directory"},
		{name: "replica of an unknown volume", line: "longhorn replica --listen 1.2.3.4:10000 /data", problem: "no volume name"},
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

// What is read of a process is bounded and valid, whatever the process is.
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
	process := func(pid int, name, line, uid string) {
		t.Helper()
		dir := fmt.Sprint(pid)
		write(dir+"/stat", dir+" ("+name+") S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0 4711 1 1 1\n")
		write(dir+"/status", "Name:\tx\nUid:\t"+uid+"\nGid:\t0\t0\t0\t0\n")
		write(dir+"/cmdline", strings.ReplaceAll(line, " ", "\x00")+"\x00")
	}
	const root4 = "0\t0\t0\t0"
	const jiva = "longhorn replica --frontendIP x /openebs"
	process(7, "longhorn", jiva, root4)
	write("7/root/etc/hostname", "pvc-9-jiva-rep-0\n")
	process(8, "longhorn", "", root4)
	write("8/cmdline", "")
	process(9, "longhorn", "longhorn controller", root4)
	process(10, "longhorn", jiva, root4)
	write("10/environ", "SECRET=pw\x00HOSTNAME=pvc-10-jiva-rep-2\x00OTHER=x\x00")
	write("10/root/etc/hostname", "not-this\n")
	process(11, "longhorn", jiva, root4)
	write("11/root/etc/hostname", "root:*:20228:0:99999:7:::\n")
	process(12, "longhorn", jiva, root4)
	write("12/root/etc/hostname", strings.Repeat("a\n", 4096))
	process(13, "longhorn", jiva, root4)
	write("13/secret", "hunter2")
	if err := os.MkdirAll(filepath.Join(root, "13/root/etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "13/secret"), filepath.Join(root, "13/root/etc/hostname")); err != nil {
		t.Fatal(err)
	}
	process(14, "longhorn) S 1", "longhorn --volume-name v\xff\xfe\n"+strings.Repeat("w", 500)+" replica --listen 1.2.3.4:10000 /d", root4)
	process(15, "longhorn", "longhorn --volume-name pvc-1 replica --listen 1.2.3.4:10000 /d", "65534\t65534\t65534\t65534")
	process(16, "longhorn", "longhorn --volume-name pvc-1 replica --listen 1.2.3.4:10000 /d", "1000\t0\t0\t0")
	process(17, "longhorn", "longhorn --volume-name pvc-1 replica "+strings.Repeat("x", maxCommandLine), root4)
	process(18, "longhorn", jiva, root4)
	if err := syscall.Mkfifo(filepath.Join(root, "18/root"), 0o600); err != nil {
		t.Fatal(err)
	}
	// By another name nothing more is read of it: a FIFO would hang the test.
	process(19, "mongod", "", root4)
	for _, name := range []string{"status", "cmdline"} {
		if err := os.Remove(filepath.Join(root, "19", name)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(root, "19", name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Its memory does not answer.
	process(20, "longhorn", "", root4)
	if err := os.Remove(filepath.Join(root, "20/cmdline")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "20/cmdline"), 0o600); err != nil {
		t.Fatal(err)
	}

	// Nor does that of a user's.
	process(21, "longhorn", "", "1000\t1000\t1000\t1000")
	if err := os.Remove(filepath.Join(root, "21/cmdline")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "21/cmdline"), 0o600); err != nil {
		t.Fatal(err)
	}

	r := replicaReader{root, dataconnWire(), untrusted.NewCalls(time.Hour, 4), newOwnerWaits(time.Hour)}
	for pid, want := range map[int]string{7: "pvc-9", 10: "pvc-10"} {
		p, start, err := r.read(pid)
		if err != nil || start != 4711 || p == nil || p.Volume != want {
			t.Errorf("process %d is %+v since %d, %v; want volume %s", pid, p, start, err, want)
		}
	}
	for _, pid := range []int{8, 19, 1234} {
		if p, _, err := r.read(pid); p != nil || err != nil {
			t.Errorf("process %d is %+v, %v; want nothing", pid, p, err)
		}
	}
	for pid, want := range map[int]string{9: "process 9", 11: "no volume name", 12: "no volume name", 13: "no volume name", 17: "longer than allowed", 18: "no volume name"} {
		p, _, err := r.read(pid)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("process %d is %+v, %v; want an error about %q", pid, p, err, want)
		}
	}
	p, _, err := r.read(14)
	if err != nil || p == nil || !utf8.ValidString(p.Volume) || len(p.Volume) > untrusted.MaxLabel || strings.ContainsAny(p.Volume, "\n") {
		t.Errorf("process 14 is %+v, %v; want a valid short name", p, err)
	}
	for _, pid := range []int{15, 16, 21} {
		if p, _, err := r.read(pid); !errors.Is(err, errNotRoot) {
			t.Errorf("process %d is %+v, %v; want it refused", pid, p, err)
		}
	}
	r.calls = untrusted.NewCalls(100*time.Millisecond, 4)
	if p, _, err := r.read(20); !errors.Is(err, untrusted.ErrUnanswered) {
		t.Errorf("process 20 is %+v, %v; want no answer in time", p, err)
	}
}
