package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// backendsPage is the runbook of commands by storage backend, to which the alerts' runbooks lead.
const backendsPage = "backends.md"

// backendTasks are what each of its sections has commands for, in this order.
var backendTasks = []string{"Where", "Health", "Rebuild", "Room", "Slow", "Salvage"}

var (
	backendRow   = regexp.MustCompile("(?m)^\\| (`.*) \\| \\[[^]]*\\]\\(#([a-z-]+)\\) \\|$")
	backendLabel = regexp.MustCompile(`\bbackend: ([a-z0-9-]+)`)
	quoted       = regexp.MustCompile("`([^`]+)`")
	backendsLink = regexp.MustCompile(`\[([^]]*)\]\(backends\.md(?:#[a-z-]*)?\)`)
	command      = regexp.MustCompile(`(?m)^ {4}(\S.*)$`)
	placeholder  = regexp.MustCompile(`\b[A-Z]{2,}\b`)
	noPlaces     = regexp.MustCompile(`'[^']*'|custom-columns=\S+|-o [A-Z,]+|%\w+|AWS/\w+`)
)

// section is a part of a runbook below a heading.
type section struct{ page, heading, text string }

// anchor is what a link to the section ends with.
func (s section) anchor() string { return strings.ReplaceAll(strings.ToLower(s.heading), " ", "-") }

// sections are those of a runbook, and what is before the first.
func sections(t *testing.T, page string) (head string, all []section) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "rules", "runbooks", page))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n## ")
	for _, part := range parts[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		all = append(all, section{page, heading, body})
	}
	return parts[0], all
}

// The backends' page has a section for each backend that the agent or a rule names, and in each section all tasks in
// their order.
func TestBackendsPage(t *testing.T) {
	head, all := sections(t, backendsPage)
	names := volume.Backends()
	for _, path := range ruletests.Glob(t, "rules", "backend-*.rules.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range backendLabel.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	anchors, listed, linked := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range all {
		anchors[s.anchor()] = true
		at := -1
		for _, task := range backendTasks {
			begins := strings.Index(s.text, "\n**"+task+".**")
			if begins <= at {
				t.Errorf("%s: %s has no task %s at its place", backendsPage, s.heading, task)
			}
			at = begins
		}
		if n := len(command.FindAllString(s.text, -1)); n < len(backendTasks)-1 {
			t.Errorf("%s: %s has only %d commands", backendsPage, s.heading, n)
		}
	}
	for _, row := range backendRow.FindAllStringSubmatch(head, -1) {
		if !anchors[row[2]] {
			t.Errorf("%s has no section #%s", backendsPage, row[2])
		}
		linked[row[2]] = true
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			if listed[name[1]] {
				t.Errorf("%s lists %s twice", backendsPage, name[1])
			}
			listed[name[1]] = true
		}
	}
	for _, name := range names {
		if !listed[name] {
			t.Errorf("%s has no section for backend %s", backendsPage, name)
		}
	}
	for anchor := range anchors {
		if !linked[anchor] {
			t.Errorf("%s lists no backend of section #%s", backendsPage, anchor)
		}
	}
	for _, task := range backendTasks {
		if !strings.Contains(head, "| **"+task+"** |") {
			t.Errorf("%s does not explain task %s", backendsPage, task)
		}
	}
}

// filled are the words in capitals that the head of the backends' page explains; a section explains its own.
var filled = []string{"VOLUME", "HANDLE", "CLAIM", "NAMESPACE", "WORKLOAD", "NODE", "DEVICE", "REPLICA", "POOL", "POD"}

// The runbooks' commands on lines of their own are a shell's, run a program that is known, and have no word to fill in
// that the page does not explain.
func TestRunbookCommands(t *testing.T) {
	bash := testkit.Tool(t, "bash")
	programs := strings.Fields("kubectl aws gcloud az openstack iscsiadm multipath nvme nfsstat nfsiostat ss lsblk lvs vgs vgchange lvconvert zpool iostat pidstat top smartctl dmesg cat df du dd fsck " +
		"gluster ps LOADGEN_DSN= printf setpriv cp")
	found := 0
	for _, path := range ruletests.Glob(t, "rules", "runbooks", "*.md") {
		page := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
			program, _, _ := strings.Cut(m[1], " ")
			if i := strings.IndexByte(program, '='); i >= 0 {
				program = program[:i+1]
			}
			if !slices.Contains(programs, program) {
				t.Errorf("%s: %q begins with no program that is known", page, m[1])
			}
			if page != backendsPage {
				continue
			}
			for _, word := range placeholder.FindAllString(noPlaces.ReplaceAllString(m[1], ""), -1) {
				if !slices.Contains(filled, word) && !strings.Contains(string(text), word+" is ") {
					t.Errorf("%s: %q has %s, which the page does not explain", page, m[1], word)
				}
			}
		}
		found += len(all)
		check := exec.Command(bash, "-n")
		check.Stdin = strings.NewReader(strings.Join(all, "\n") + "\n")
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", page, err, out)
		}
	}
	if found < 150 {
		t.Errorf("only %d commands were found in the runbooks", found)
	}
	// The test itself finds what no shell takes.
	broken := exec.Command(bash, "-n")
	broken.Stdin = strings.NewReader("kubectl get pods -o jsonpath='{.items}\n")
	if broken.Run() == nil {
		t.Error("the shell takes a quote that does not end")
	}
}

// notOfStorage are alerts of pages on storage that no storage backend can do anything about, and why.
var notOfStorage = map[string]string{
	"StatementsBlocked":       "the database's own locks",
	"IdleInTransactionBlocks": "the database's own locks",
	"CanaryUnanswered":        "its layer has an alert of its own",
	"StallLocated":            "leads to the alert on the layer",
	"DatabaseDown":            "the database's own log",
	"ServerDown":              "the database's own log",
	"CanaryErrors":            "the database's own log",
	"ReadCacheCollapse":       "the node's memory",
	"CanaryHostSlow":          "the node, not its storage",
}

// storagePages are the runbooks of alerts on storage.
var storagePages = []string{"state.md", "failslow.md", "stall.md", "canary.md", "shift.md"}

// The runbook of each alert on storage leads to the commands by backend, and names the tasks that it is about.
func TestStorageRunbooksLeadToBackends(t *testing.T) {
	seen := map[string]bool{}
	for _, page := range storagePages {
		_, all := sections(t, page)
		for _, s := range all {
			seen[s.heading] = true
			links := backendsLink.FindAllStringSubmatch(s.text, -1)
			if notOfStorage[s.heading] != "" {
				continue
			}
			if len(links) == 0 {
				t.Errorf("%s: %s has no link to %s", page, s.heading, backendsPage)
			}
			for _, link := range links {
				for task := range strings.SplitSeq(link[1], ", ") {
					if !slices.Contains(backendTasks, task) {
						t.Errorf("%s: %s links to %s as %q, which is none of %v", page, s.heading, backendsPage, link[1], backendTasks)
					}
				}
			}
		}
	}
	for name := range notOfStorage {
		if !seen[name] {
			t.Errorf("there is no section %s", name)
		}
	}
}

// ofOneBackend are metrics of which a volume, or a target, has those of its own kind alone.
var ofOneBackend = regexp.MustCompile(`^(plumbline_longhorn|plumbline_openebs|kube|pg|mysql)_`)

// A runbook's query with "or" shows the series of both sides: "or" leaves out those of the right side whose labels the
// left side has, whatever their names.
func TestRunbookQueriesShowBothSides(t *testing.T) {
	n := 0
	eachRunbookQuery(t, func(page, text string, expr parser.Expr) {
		b, ok := expr.(*parser.BinaryExpr)
		if !ok || b.Op != parser.LOR {
			return
		}
		n++
		if left, right := firstMetric(b.LHS), firstMetric(b.RHS); left != right &&
			(ofOneBackend.FindString(left) == "" || ofOneBackend.FindString(left) == ofOneBackend.FindString(right)) {
			t.Errorf("%s: series of %s are left out where %s has the same labels:\n%s", page, right, left, text)
		}
	})
	if n == 0 {
		t.Error("no query has an or")
	}
}

// firstMetric is the name of the first selector of an expression.
func firstMetric(expr parser.Expr) (name string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok && name == "" {
			name = v.Name
		}
		return nil
	})
	return name
}

// engines are metrics that a storage backend's exporter, or the kubelet, is alone to know.
var engines = regexp.MustCompile(`^(plumbline_(longhorn|openebs|gluster)_|plumbline_volume_(replica_info|desired_replicas|healthy_replicas)$|kubelet_|kube_|pool:|replica:rebuild_progress|volume:(rebuilding|degraded|faulted):)`)

// A query that is empty while an exporter is down has that beside it: nothing found must not be read as nothing wrong.
func TestRunbookQueriesThatCanBeEmpty(t *testing.T) {
	promql, n := parser.NewParser(parser.Options{}), 0
	for _, page := range storagePages {
		_, all := sections(t, page)
		for _, s := range all {
			for _, at := range fence.FindAllStringSubmatchIndex(s.text, -1) {
				expr, err := promql.ParseExpr(s.text[at[2]:at[3]])
				if err != nil {
					t.Fatalf("%s: %s: %v", page, s.heading, err)
				}
				can := false
				parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
					if v, ok := node.(*parser.VectorSelector); ok && engines.MatchString(v.Name) {
						can = true
					}
					return nil
				})
				if !can {
					continue
				}
				n++
				before := strings.TrimSpace(s.text[:at[0]])
				if i := strings.LastIndex(before, "\n\n"); i >= 0 {
					before = before[i:]
				}
				if !strings.Contains(before, "mpty") {
					t.Errorf("%s: %s: the text does not state when this is empty:\n%s", page, s.heading, s.text[at[2]:at[3]])
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d such queries were found", n)
	}
}
