package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/manifests/release/stage"
	"github.com/plumbline/plumbline/tests/testkit"
)

// program is a static Go program for amd64, built once.
var program = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "plumbline-release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "images")
	build := exec.Command("go", "build", "-o", file, "../images/build")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return os.ReadFile(file)
})

// checkout is what a release is made of: the real chart, rules and dashboards, stand-ins for the
// programs, a real one among them; with other times each time.
func checkout(t *testing.T, stamp time.Time) string {
	t.Helper()
	root := t.TempDir()
	cp := exec.Command("cp", "-a", "--parents", "manifests/chart", "manifests/images", "exporters/blockio/blkio.yaml", "exporters/blockio/blkio.bpf.o", "rules", "dashboards", "docs", "LICENSE", root)
	cp.Dir = testkit.Root()
	if text, err := cp.CombinedOutput(); err != nil {
		t.Fatalf("%s", text)
	}
	agent, err := program()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"build/linux/amd64/plumbline-agent": string(agent), "build/linux/arm64/plumbline-agent": "for arm64",
		"build/linux/amd64/ebpf_exporter": "exporter for amd64", "build/linux/arm64/ebpf_exporter": "exporter for arm64",
		"build/plugin/linux-amd64/kubectl-plumbline": "#!/bin/sh\necho for linux-amd64\n", "build/plugin/linux-arm64/kubectl-plumbline": "#!/bin/sh\necho for linux-arm64\n",
		"build/plugin/darwin-amd64/kubectl-plumbline": "for darwin-amd64", "build/plugin/darwin-arm64/kubectl-plumbline": "for darwin-arm64",
		"CHANGELOG.md": "# Changelog\n\n## 9.9.9, today\n\n### Added\n- This.\n\n## 9.9.8\n\nThat.\n"}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		if err == nil {
			err = os.Chtimes(path, stamp, stamp)
		}
		if os.IsNotExist(err) {
			err = nil // a link that leads out of the copy
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func makeRelease(t *testing.T, root, version string) error {
	t.Helper()
	r := release{root: root, version: version, helm: testkit.Tool(t, "helm"), commit: "0123abc", archs: []string{"amd64", "arm64"}, images: []string{"agent"}}
	return r.make()
}

// TestReproducible makes a release of two checkouts of other days and compares every byte.
func TestReproducible(t *testing.T) {
	one, two := checkout(t, time.Unix(1e9, 0)), checkout(t, time.Unix(1.5e9, 0))
	for _, root := range []string{one, two} {
		if err := makeRelease(t, root, "9.9.9"); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(one, "build", "release", "9.9.9")
	if text, err := exec.Command("diff", "-r", out, filepath.Join(two, "build", "release", "9.9.9")).CombinedOutput(); err != nil {
		t.Errorf("the same release twice differs: %s", text)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = out
	if text, err := check.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != 16 {
		t.Errorf("SHA256SUMS: %v\n%s", err, text)
	}
	changes, err := os.ReadFile(filepath.Join(out, "CHANGES.md"))
	if err != nil || string(changes) != "# Plumbline 9.9.9\n\n### Added\n- This.\n" {
		t.Errorf("%v %s", err, changes)
	}
	var bill struct {
		Components []struct{ Name, Version, Type string }
	}
	text, err := os.ReadFile(filepath.Join(out, "plumbline-agent-9.9.9-amd64.cdx.json"))
	if err != nil || json.Unmarshal(text, &bill) != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range bill.Components {
		found[c.Name] = true
	}
	for _, want := range []string{"/plumbline-agent", "stdlib", "github.com/alecthomas/kingpin/v2"} {
		if !found[want] {
			t.Errorf("the bill of materials lacks %s: %.300s", want, text)
		}
	}
	files, err := stage.Unpack(filepath.Join(out, "chart-plumbline-9.9.9.tgz"))
	if err != nil || !strings.Contains(string(files["plumbline/Chart.yaml"]), "9.9.9") || len(files["plumbline/rules/canary.rules.yaml"]) == 0 {
		t.Errorf("the chart: %v", err)
	}
	for _, variant := range []string{"plumbline/rules/either/volume.rules.yaml", "plumbline/rules/classic/volume.rules.yaml", "plumbline/dashboards/classic/plumbline-volumes.json"} {
		if len(files[variant]) == 0 {
			t.Errorf("the chart lacks %s", variant)
		}
	}
	for bundle, want := range map[string][]string{
		"rules":      {"rules/volume.rules.yaml", "rules/either/volume.rules.yaml", "rules/classic/volume.rules.yaml", "rules/optional/kube-prometheus-stack.rules.yaml", "rules/runbooks/stall.md", "docs/operate/alerts.md"},
		"dashboards": {"dashboards/plumbline-volumes.json", "dashboards/classic/plumbline-volumes.json", "docs/operate/dashboards.md"},
	} {
		files, err := stage.Unpack(filepath.Join(out, "plumbline-"+bundle+"-9.9.9.tar.gz"))
		for _, name := range want {
			if err != nil || len(files["plumbline-9.9.9/"+name]) == 0 {
				t.Errorf("the bundle of %s lacks %s (%v)", bundle, name, err)
			}
		}
	}
	for name := range files {
		if strings.HasSuffix(name, ".go") || strings.Contains(name, "/tests/") {
			t.Errorf("the chart has %s", name)
		}
	}
}

// TestMachineArchive unpacks a machine's archive as root may: all may read what is in it, and run the programs.
func TestMachineArchive(t *testing.T) {
	root := checkout(t, time.Unix(1e9, 0))
	if err := makeRelease(t, root, "9.9.9"); err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	archive := filepath.Join(root, "build", "release", "9.9.9", "plumbline-9.9.9-linux-arm64.tar.gz")
	if text, err := exec.Command("/bin/sh", "-c", `umask 077 && tar -xpzf "$1" -C "$2"`, "sh", archive, into).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	folder := filepath.Join(into, "plumbline-9.9.9")
	for name, mode := range map[string]os.FileMode{".": 0o755, "blockio": 0o755, "blockio/blkio.yaml": 0o644, "blockio/blkio.bpf.o": 0o644,
		"plumbline": 0o755, "plumbline-agent": 0o755, "ebpf_exporter": 0o755, "LICENSE": 0o644} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, info, err, mode)
		}
	}
	for name, want := range map[string]string{"plumbline": "for linux-arm64", "plumbline-agent": "for arm64", "ebpf_exporter": "exporter for arm64"} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has %.50q: %v", name, text, err)
		}
	}
}

// TestMaterials has the Debian packages of an image named, with their distribution.
func TestMaterials(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"etc/os-release":                "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n",
		"var/lib/dpkg/status.d/libx++1": "Package: libx++1\nArchitecture: amd64\nVersion: 1:2.3-4~deb12u1\n",
		"usr/lib/libx.so.1":             "of a package",
	} {
		file = filepath.Join(root, "tree", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := &images.Dockerfile{Folders: map[string]string{"/": "tree/"}}
	text, err := materials(root, "some", "9.9.9", d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name": "/usr/lib/libx.so.1"`, `"name": "libx++1"`, `"version": "1:2.3-4~deb12u1"`,
		`"purl": "pkg:deb/debian/libx%2B%2B1@1%3A2.3-4~deb12u1?arch=amd64\u0026distro=debian-12"`} {
		if !strings.Contains(string(text), want) && !strings.Contains(string(text), strings.ReplaceAll(want, `\u0026`, "&")) {
			t.Errorf("the bill of materials lacks %s:\n%s", want, text)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "tree/etc/os-release"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := materials(root, "some", "9.9.9", d); err == nil || !strings.Contains(err.Error(), "/etc/os-release") {
		t.Errorf("packages of no distribution: %v", err)
	}
}

// TestPlugin has krew itself install the plugin from the manifest and the archive of this machine's platform, and runs
// it; then from an archive that is not the one that the manifest has the checksum of.
func TestPlugin(t *testing.T) {
	krew := testkit.Tool(t, "krew")
	root := checkout(t, time.Unix(1e9, 0))
	if err := makeRelease(t, root, "9.9.9"); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "build", "release", "9.9.9")
	install := func(home, archive string) (string, error) {
		cmd := exec.Command(krew, "install", "--manifest="+filepath.Join(out, "krew-plumbline.yaml"), "--archive="+archive)
		cmd.Env = append(os.Environ(), "KREW_ROOT="+home, "KREW_NO_UPGRADE_CHECK=1")
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	home := t.TempDir()
	archive := filepath.Join(out, "kubectl-plumbline-9.9.9-linux-"+runtime.GOARCH+".tar.gz")
	if text, err := install(home, archive); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	output, err := exec.Command(filepath.Join(home, "bin", "kubectl-plumbline")).CombinedOutput()
	if err != nil || string(output) != "for linux-"+runtime.GOARCH+"\n" {
		t.Errorf("%v %s", err, output)
	}
	if text, err := install(t.TempDir(), filepath.Join(out, "kubectl-plumbline-9.9.9-darwin-arm64.tar.gz")); err == nil || !strings.Contains(text, "checksum") {
		t.Errorf("another archive: %v %s", err, text)
	}
	// Other machines': each platform has its own archive, with its checksum and a license.
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "krew-plumbline.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil || manifest.Spec.Version != "v9.9.9" || len(manifest.Spec.Platforms) != 4 {
		t.Fatalf("%v %s", err, text)
	}
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range manifest.Spec.Platforms {
		platform := p.Selector.MatchLabels["os"] + "-" + p.Selector.MatchLabels["arch"]
		name := "kubectl-plumbline-9.9.9-" + platform + ".tar.gz"
		if p.URI != "https://github.com/plumbline/plumbline/releases/download/v9.9.9/"+name || !strings.Contains(string(sums), p.SHA256+"  "+name+"\n") {
			t.Errorf("%s: %s %s", platform, p.URI, p.SHA256)
		}
		files, err := stage.Unpack(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(files[p.Bin]), "for "+platform) || !strings.Contains(string(files["LICENSE"]), "Apache License") || len(files) != 2 {
			t.Errorf("%s: %v, %d files", platform, err, len(files))
		}
	}
}

// The command line gives what it does not name its default.
func TestParse(t *testing.T) {
	command, r, err := parse([]string{"all", "--release=0.2.0", "agent"})
	if err != nil || command != "all" {
		t.Fatal(command, err)
	}
	if r.version != "0.2.0" || r.root != "." || r.helm != "build/bin/helm" || r.commit != "unknown" || strings.Join(r.archs, " ") != "amd64 arm64" || len(r.images) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestRefused(t *testing.T) {
	root := checkout(t, time.Unix(1e9, 0))
	for version, want := range map[string]string{"9.9.7": "no section", "latest": "not a version", "v1": "not a version"} {
		if err := makeRelease(t, root, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestCharts: both charts pass Helm's check and are packed.
func TestCharts(t *testing.T) {
	r := release{root: testkit.Root(), helm: testkit.Tool(t, "helm"), out: filepath.Join(t.TempDir(), "chart")}
	if err := r.charts(); err != nil {
		t.Fatal(err)
	}
	if archives, err := filepath.Glob(filepath.Join(r.out, "*.tgz")); err != nil || len(archives) != 2 {
		t.Errorf("packed: %v, %v", archives, err)
	}
}
