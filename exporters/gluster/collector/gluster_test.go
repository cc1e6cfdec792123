package collector

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// replay answers as GlusterFS 10.3 did when the files in testdata were captured: a replica-3 volume
// under a database's load, whole and with one brick killed.
const replay = `#!/bin/sh
name=
for word; do
  case $word in --version) name=version ;; --*) ;; *) name=$name${name:+-}$word ;; esac
done
cat "$(dirname "$0")"/answers/"$name".*
`

// fake makes a program that gives the answers in directory; edits replace a whole answer.
func fake(t *testing.T, directory string, edits map[string]string) CLI {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "answers"), os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	for name, text := range edits {
		if err := os.WriteFile(filepath.Join(root, "answers", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "gluster")
	if err := os.WriteFile(program, []byte(replay), 0o755); err != nil {
		t.Fatal(err)
	}
	return CLI{Command: program, Timeout: testkit.DefaultTimeout}
}

// polled is a collector that has polled once.
func polled(t *testing.T, cli CLI, bricks string) (*Gluster, *prometheus.Registry) {
	t.Helper()
	g, r := unpolled(t, cli, bricks)
	g.poll(context.Background(), testkit.DefaultTimeout)
	return g, r
}

func unpolled(t *testing.T, cli CLI, bricks string) (*Gluster, *prometheus.Registry) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	g := New(Options{Log: log, CLI: cli, Node: "n1", Bricks: bricks, Interval: time.Minute, ProcFS: "/proc", SysFS: "/sys", RootFS: t.TempDir()})
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("gluster", g)
	r := prometheus.NewRegistry()
	r.MustRegister(set)
	return g, r
}

func TestCapturedAnswers(t *testing.T) {
	for _, name := range []string{"healthy", "degraded"} {
		t.Run(name, func(t *testing.T) {
			_, r := polled(t, fake(t, filepath.Join("testdata", name), nil), "all")
			exposition.Golden(t, r, filepath.Join("testdata", name+".prom"), "plumbline_scrape_collector_duration_seconds", "plumbline_gluster_last_poll_timestamp_seconds")
		})
	}
}

const (
	status  = "volume-status-all.xml"
	profile = "volume-profile-lab-gluster-r3-info-cumulative.xml"
	heal    = "volume-heal-lab-gluster-r3-statistics-heal-count.txt"
	refused = "<?xml version=\"1.0\"?><cliOutput><opRet>-1</opRet><opErrno>30800</opErrno><opErrstr>Another transaction is in progress</opErrstr></cliOutput>"
)

// One bad answer is counted under its command and loses only its own data.
func TestBadAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		file, answer    string
		counted, absent string
		up              string
	}{
		"list refused":      {"volume-info.xml", refused, "volume info", "plumbline_volume_replica_info", "0"},
		"pool is no XML":    {"pool-list.xml", "Connection failed.\n", "pool list", "plumbline_volume_replica_info", "0"},
		"status refused":    {status, refused, "volume status", "plumbline_gluster_brick_up", "1"},
		"profile cut off":   {profile, "<?xml version=\"1.0\"?><cliOutput><opRet>0</opRet>", "volume profile", "plumbline_gluster_fops_total", "1"},
		"heal names none":   {heal, "Launching heal operation was unsuccessful\n", "volume heal", "plumbline_gluster_brick_heal_entries", "1"},
		"heal has no count": {heal, "Brick h:/b\nNumber of entries: -\n", "volume heal", "plumbline_gluster_brick_heal_entries", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{test.file: test.answer}), "all")
			text := exposition.Text(t, r)
			for _, want := range []string{`plumbline_gluster_errors_total{command="` + test.counted + `"} 1`, "plumbline_gluster_up " + test.up} {
				if !strings.Contains(text, want+"\n") {
					t.Errorf("no %s in\n%s", want, text)
				}
			}
			if strings.Contains(text, "\n"+test.absent+"{") {
				t.Errorf("%s is there although nothing is known of it", test.absent)
			}
		})
	}
}

// While it is not known what is to be healed, no number of healthy replicas is claimed.
func TestHealIsNotAnswered(t *testing.T) {
	for name, answer := range map[string]string{"refused": "Launching heal operation was unsuccessful\n", "another volume's": "Brick h:/b\nNumber of entries: 0\n"} {
		t.Run(name, func(t *testing.T) {
			_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{heal: answer}), "all")
			text := exposition.Text(t, r)
			if strings.Contains(text, "\nplumbline_volume_healthy_replicas{") || !strings.Contains(text, "\nplumbline_volume_desired_replicas{") {
				t.Errorf("want the replicas that are meant to be, and none that are healthy:\n%s", text)
			}
		})
	}
}

// A brick that is down is reported while it is not known what has to heal: at most as many as run are healthy.
func TestHealIsNotAnsweredWithABrickDown(t *testing.T) {
	_, r := polled(t, fake(t, filepath.Join("testdata", "degraded"), map[string]string{heal: "Launching heal operation was unsuccessful\n"}), "all")
	text := exposition.Text(t, r)
	for _, want := range []string{
		`plumbline_volume_healthy_replicas{backend="gluster",volume="lab-gluster-r3"} 2`,
		`plumbline_volume_desired_replicas{backend="gluster",volume="lab-gluster-r3"} 3`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// A volume without copies is lost with a brick; one whose bricks have pieces of each file (dispersed) is not, and has
// no replicas to count.
func TestBrickDownOfAVolumeWithoutCopies(t *testing.T) {
	const counted = `plumbline_volume_healthy_replicas{backend="gluster",volume="lab-gluster-r3"} `
	info, err := os.ReadFile(filepath.Join("testdata", "degraded", "volume-info.xml"))
	if err != nil {
		t.Fatal(err)
	}
	single := strings.Replace(string(info), "<replicaCount>3<", "<replicaCount>1<", 1)
	for name, test := range map[string]struct{ info, want string }{
		"distributed": {single, "0"},
		"dispersed":   {strings.Replace(single, "<disperseCount>0<", "<disperseCount>3<", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := polled(t, fake(t, filepath.Join("testdata", "degraded"), map[string]string{"volume-info.xml": test.info}), "all")
			text := exposition.Text(t, r)
			if strings.Contains(text, "\n"+counted) != (test.want != "") || test.want != "" && !strings.Contains(text, "\n"+counted+test.want+"\n") {
				t.Errorf("want %q healthy replicas:\n%s", test.want, text)
			}
		})
	}
}

// A program that is missing, hangs or fails without output is reported.
func TestCallsThatFail(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "gluster")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		command string
		timeout time.Duration
		want    string
	}{
		"missing":      {"no-such-gluster", time.Minute, "not found"},
		"hangs":        {script("exec sleep 600"), 200 * time.Millisecond, "no answer"},
		"glusterd off": {script("echo 'Connection failed. Please check if gluster daemon is operational.' >&2; exit 1"), time.Minute, "Connection failed"},
	} {
		t.Run(name, func(t *testing.T) {
			cli := CLI{Command: test.command, Timeout: test.timeout}
			var answer poolList
			if err := cli.query(context.Background(), &answer, "pool", "list"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// With --bricks=local the bricks of other machines are left to their own exporters. For a volume without a brick here
// no profile and heals are queried, which would be refused here: each such command takes a lock on all machines. A
// brick of it that is down is reported all the same.
func TestLocalBricksOnly(t *testing.T) {
	other := map[string]string{"pool-list.xml": `<?xml version="1.0"?><cliOutput><opRet>0</opRet><peerStatus><peer><uuid>another</uuid><hostname>localhost</hostname></peer></peerStatus></cliOutput>`,
		profile: refused, heal: "Launching heal operation was unsuccessful\n"}
	_, r := polled(t, fake(t, filepath.Join("testdata", "degraded"), other), "local")
	text := exposition.Text(t, r)
	for _, want := range []string{
		`plumbline_gluster_errors_total{command="volume profile"} 0`, `plumbline_gluster_errors_total{command="volume heal"} 0`,
		`plumbline_volume_healthy_replicas{backend="gluster",volume="lab-gluster-r3"} 2`,
		`plumbline_volume_desired_replicas{backend="gluster",volume="lab-gluster-r3"} 3`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "replica=") {
		t.Errorf("want the volume without its bricks:\n%s", text)
	}
}

func TestHealthyReplicas(t *testing.T) {
	yes, no := true, false
	b := func(up *bool, heal float64) *brick { return &brick{up: up, heal: &heal} }
	uncounted := func(up *bool) *brick { return &brick{up: up} }
	arbiter := b(&yes, 0)
	arbiter.arbiter = true
	for name, test := range map[string]struct {
		v     volume
		want  int
		known bool
	}{
		"whole":              {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 0), b(&yes, 0), b(&yes, 0)}}, 3, true},
		"one is down":        {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 4), b(&yes, 4), b(&no, 0)}}, 2, true},
		"one is being given": {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 4), b(&yes, 4), b(&yes, 0)}}, 2, true},
		"the worst set":      {volume{replicas: 2, set: 2, bricks: []*brick{b(&yes, 0), b(&yes, 0), b(&no, 0), b(&no, 0)}}, 0, true},
		"arbiter":            {volume{replicas: 2, set: 3, bricks: []*brick{b(&yes, 0), b(&no, 0), arbiter}}, 1, true},
		"no heal count":      {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 0), b(&yes, 0), uncounted(&yes)}}, 0, false},
		"one down, no count": {volume{replicas: 3, set: 3, bricks: []*brick{uncounted(&yes), uncounted(&yes), uncounted(&no)}}, 2, true},
		"gone, no count":     {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 4), b(&yes, 4), uncounted(&no)}}, 2, true},
		"last, no count":     {volume{replicas: 3, set: 3, bricks: []*brick{uncounted(&yes), uncounted(&no), uncounted(&no)}}, 1, true},
		"arbiter's no count": {volume{replicas: 2, set: 3, bricks: []*brick{b(&yes, 0), b(&yes, 0), {up: &yes, arbiter: true}}}, 2, true},
		"lost, other not known": {volume{replicas: 2, set: 2,
			bricks: []*brick{uncounted(&yes), uncounted(&yes), uncounted(&no), uncounted(&no)}}, 0, true},
		"one lists, other's no count": {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 4), b(&yes, 0), uncounted(&yes)}}, 2, true},
		"both may have it":            {volume{replicas: 2, set: 2, bricks: []*brick{b(&yes, 4), uncounted(&yes)}}, 0, false},
		"one down, one not known":     {volume{replicas: 3, set: 3, bricks: []*brick{b(&yes, 0), b(nil, 0), b(&no, 0)}}, 2, true},
		"only the lone one not known": {volume{replicas: 2, set: 2, bricks: []*brick{b(nil, 0), b(&no, 0)}}, 1, true},
		"bad set, other not known": {volume{replicas: 2, set: 2,
			bricks: []*brick{uncounted(&yes), uncounted(&yes), b(&yes, 4), b(&yes, 0)}}, 1, true},
		"arbiter, one down, no count": {volume{replicas: 2, set: 3, bricks: []*brick{uncounted(&yes), uncounted(&no), arbiter}}, 1, true},
		"not known":                   {volume{replicas: 2, set: 2, bricks: []*brick{b(&yes, 0), b(nil, 0)}}, 0, false},
	} {
		if n, known := test.v.healthy(); n != test.want || known != test.known {
			t.Errorf("%s: %d, %v; want %d, %v", name, n, known, test.want, test.known)
		}
	}
}

// --check reports what is there and what is not counted.
func TestCheck(t *testing.T) {
	g, _ := polled(t, fake(t, filepath.Join("testdata", "healthy"), nil), "all")
	if results := g.Check(context.Background()); len(results) != 2 || results[1].Err != nil || results[1].Note != "3 of 3 bricks are counted" {
		t.Errorf("%+v", results)
	}
	info, err := os.ReadFile(filepath.Join("testdata", "healthy", "volume-info.xml"))
	if err != nil {
		t.Fatal(err)
	}
	off := strings.ReplaceAll(string(info), "<value>on</value>", "<value>off</value>")
	g, _ = polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{"volume-info.xml": off}), "all")
	if results := g.Check(context.Background()); len(results) != 2 || results[1].Err == nil {
		t.Errorf("a volume that counts nothing passes: %+v", results)
	}
	g, _ = polled(t, CLI{Command: "no-such-gluster", Timeout: time.Minute}, "all")
	if results := g.Check(context.Background()); len(results) != 1 || results[0].Err == nil {
		t.Errorf("no GlusterFS passes: %+v", results)
	}
}

// Hosts that are named by IPv6 addresses, with brackets or without, have their bricks as others have.
func TestBricksOfIPv6Hosts(t *testing.T) {
	const old, host = "127.25.2.200", "2001:db8::7"
	folder := filepath.Join("testdata", "healthy")
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, written := range []string{host, "[" + host + "]"} {
		edits := map[string]string{"pool-list.xml": `<?xml version="1.0"?><cliOutput><opRet>0</opRet><peerStatus><peer><uuid>another</uuid><hostname>localhost</hostname></peer></peerStatus></cliOutput>`}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(folder, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			as := host
			if f.Name() == "volume-info.xml" {
				as = written
			}
			if edits[f.Name()] == "" {
				edits[f.Name()] = strings.ReplaceAll(string(text), old, as)
			}
		}
		_, r := polled(t, fake(t, folder, edits), "all")
		text := exposition.Text(t, r)
		for want, n := range map[string]int{
			`plumbline_volume_healthy_replicas{backend="gluster",volume="lab-gluster-r3"} 3`: 1,
			`plumbline_gluster_brick_heal_entries{`:                                          3, `plumbline_gluster_brick_read_bytes_total{`: 3,
			`plumbline_volume_replica_info{address="[2001:db8::7]:`: 3, `,node="2001:db8::7",`: 3,
		} {
			if got := strings.Count(text, want); got != n {
				t.Errorf("%s: %d times %s, want %d:\n%s", written, got, want, n, text)
			}
		}
	}
	for name, want := range map[string]place{
		"2001:db8::7:/bricks/1": {"2001:db8::7", "/bricks/1"}, "[2001:db8::7]:/bricks/1": {"2001:db8::7", "/bricks/1"}, "fe80::1%eth0:/b:/c": {"fe80::1%eth0", "/b:/c"},
		"node-1:/bricks/1": {"node-1", "/bricks/1"}, "10.0.0.1:/b": {"10.0.0.1", "/b"}, "odd": {"odd", ""},
	} {
		if got := placeOf(name); got != want {
			t.Errorf("%s is at %q, want %q", name, got, want)
		}
	}
}

// Bricks of a volume that one process serves, by one port, keep addresses of their own. Those whose disks are not found
// are counted.
func TestBricksOfOneProcess(t *testing.T) {
	one := strings.NewReplacer("60916", "50942", "51484", "50942")
	folder := filepath.Join("testdata", "healthy")
	text, err := os.ReadFile(filepath.Join(folder, status))
	if err != nil {
		t.Fatal(err)
	}
	_, r := polled(t, fake(t, folder, map[string]string{status: one.Replace(string(text))}), "all")
	got := exposition.Text(t, r)
	for i := range 3 {
		brick := fmt.Sprintf("127.25.2.200:/var/lib/plumbline-lab/classes/gluster-r3/replicas/%d/brick", i+1)
		if !strings.Contains(got, fmt.Sprintf("plumbline_volume_replica_info{address=%q,", brick)) {
			t.Errorf("no address %s in\n%s", brick, got)
		}
	}
	if want := "plumbline_untraced_paths{collector=\"gluster\"} 3"; !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
}

// GlusterFS reports an option as it was typed, by any of its words for on.
func TestProfiledByAnyWord(t *testing.T) {
	const on = "<value>on</value>"
	for word, want := range map[string]string{"Enable": "1", "1": "1", "true": "1", "off": "0"} {
		info := edited(t, "volume-info.xml", on, "<value>"+word+"</value>")
		_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{"volume-info.xml": info}), "all")
		if text := exposition.Text(t, r); !strings.Contains(text, `plumbline_gluster_volume_profiled{volume="lab-gluster-r3"} `+want+"\n") {
			t.Errorf("%s: want %s in\n%s", word, want, text)
		}
	}
}
