// Package tools tests the scripts in this folder and the pins of the third-party programs.
package tools

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// run runs a program and returns what it printed on both streams, and its exit code.
func run(t *testing.T, environment []string, name string, arguments ...string) (string, int) {
	t.Helper()
	command := exec.Command(name, arguments...)
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return string(output), command.ProcessState.ExitCode()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestVersions reads the version of every program that is in build/bin and compares it with its pin.
func TestVersions(t *testing.T) {
	list, code := run(t, nil, "./build", "--list")
	if code != 0 {
		t.Fatalf("tools/build --list: %s", list)
	}
	versionArguments := map[string][]string{
		"process-compose":         {"version"},
		"longhorn-engine":         {"version", "--client-only"},
		"longhorn-engine-rebuilt": {"version", "--client-only"},
		"k6":                      {"version"},
		"helm":                    {"version"},
		"krew":                    {"version"},
		"jaeger":                  {"version"},
		"kubectl":                 {"version", "--client"},
		"cloudnative-pg":          {"version"},
	}
	// What they report their build would have to set, or is the commit of a checkout, which a module does not have.
	unversioned := []string{"grpc-health-probe", "csi-resizer", "csi-sidecar"}
	checked := 0
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			t.Fatalf("tools/build --list printed %q, not a program, its version and its state", line)
		}
		program, version := fields[0], fields[1]
		path := filepath.Join(testkit.Root(), "build", "bin", program)
		if _, err := os.Stat(path); fields[2] != "built" || err != nil || slices.Contains(unversioned, program) {
			continue
		}
		checked++
		t.Run(program, func(t *testing.T) {
			arguments := versionArguments[program]
			if arguments == nil {
				arguments = []string{"--version"}
			}
			if output, code := run(t, nil, path, arguments...); code != 0 || !strings.Contains(output, version) {
				t.Errorf("pinned %s, the program prints (exit %d): %s", version, code, output)
			}
		})
	}
	if checked == 0 {
		testkit.Skip(t, "no program is built; `make programs` builds them")
	}
}

// project is a checkout with the scripts, and with two programs that build in no time: each prints the version it was given.
func project(t *testing.T) (folder string, environment []string) {
	folder = t.TempDir()
	for _, script := range []string{"build", "go", "libbpf", "sysroot"} {
		content, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "tools", script), string(content))
	}
	write(t, filepath.Join(folder, "go.mod"), "module example.org/project\n\ngo 1.26.0\n")
	table := "# comment\n\n"
	for _, name := range []string{"one", "two"} {
		table += name + " " + name + " example.org/" + name + " . - - main.version\n"
		write(t, filepath.Join(folder, name, "go.mod"), "module example.org/"+name+"\n\ngo 1.26.0\n")
		write(t, filepath.Join(folder, name, "main.go"), "package main\n\nvar version string\n\nfunc main() { println(version) }\n")
		pin(t, folder, name, "v1.2.3")
	}
	write(t, filepath.Join(folder, "tools", "programs"), table)
	return folder, []string{"PLUMBLINE_CACHE=" + filepath.Join(folder, "cache"), "GOFLAGS=", "GOPROXY=off"}
}

func pin(t *testing.T, folder, name, version string) {
	write(t, filepath.Join(folder, "tools", name, "go.mod"), "module example.org/tools/"+name+"\n\ngo 1.26.0\n\n"+
		"require example.org/"+name+" "+version+"\n\nreplace example.org/"+name+" => ../../"+name+"\n")
	write(t, filepath.Join(folder, "tools", name, "go.sum"), "")
}

// built runs the program in build/bin and returns what it prints.
func built(t *testing.T, folder, name string) string {
	t.Helper()
	output, _ := run(t, nil, filepath.Join(folder, "build", "bin", name))
	return strings.TrimSpace(output)
}

func TestBuildsOnlyWhatChanged(t *testing.T) {
	folder, environment := project(t)
	script := filepath.Join(folder, "tools", "build")

	if output, code := run(t, environment, script, "one", "two"); code != 0 || !strings.Contains(output, "once: one two") {
		t.Fatalf("first run (exit %d): %s", code, output)
	}
	if one := built(t, folder, "one"); one != "1.2.3" {
		t.Errorf("one prints %q", one)
	}
	if output, code := run(t, environment, script, "one", "two"); code != 0 || output != "" {
		t.Errorf("second run has nothing to do and nothing to print, but exit %d: %s", code, output)
	}
	pin(t, folder, "two", "v1.3.0")
	if output, code := run(t, environment, script, "one", "two"); code != 0 || !strings.Contains(output, "once: two\n") {
		t.Errorf("after another pin of two (exit %d): %s", code, output)
	}
	if two := built(t, folder, "two"); two != "1.3.0" {
		t.Errorf("two prints %q after its pin became 1.3.0", two)
	}
	pin(t, folder, "two", "v1.2.3")
	if output, code := run(t, environment, script, "two"); code != 0 || output != "" {
		t.Errorf("the old pin is still in the cache, but exit %d: %s", code, output)
	}
	if two := built(t, folder, "two"); two != "1.2.3" {
		t.Errorf("two prints %q after its pin went back to 1.2.3", two)
	}
}

// another is an architecture that this machine is not of.
func another() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

// TestArchitectures builds for the machine's architecture and another one: the first is the program that is there already, the
// second one more, and neither takes the other's place.
func TestArchitectures(t *testing.T) {
	folder, environment := project(t)
	script := filepath.Join(folder, "tools", "build")
	for _, step := range []struct {
		arguments []string
		builds    bool
	}{
		{[]string{"one"}, true},
		{[]string{"--arch=" + runtime.GOARCH, "one"}, false},
		{[]string{"--arch=" + another(), "one"}, true},
		{[]string{"one", "--arch=" + another()}, false},
		{[]string{"one"}, false},
	} {
		if output, code := run(t, environment, script, step.arguments...); code != 0 || strings.Contains(output, "once: one") != step.builds {
			t.Errorf("%v: exit %d: %s", step.arguments, code, output)
		}
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for place, arch := range map[string]string{"": runtime.GOARCH, runtime.GOARCH: runtime.GOARCH, another(): another()} {
		f, err := elf.Open(filepath.Join(folder, "build", "bin", place, "one"))
		if err != nil {
			t.Error(err)
			continue
		}
		f.Close()
		if f.Machine != machines[arch] {
			t.Errorf("build/bin/%s/one is for %s", place, f.Machine)
		}
	}
}

// TestNoCrossCompiler: a program that uses C, for another architecture, without its compiler: the error names the packages' group.
func TestNoCrossCompiler(t *testing.T) {
	folder, environment := project(t)
	write(t, filepath.Join(folder, "tools", "programs"), "one one example.org/one . z - main.version\n")
	// A compiler of that name that has no C library is no better than none.
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[another()]
	write(t, filepath.Join(folder, "path", triplet+"-gcc"), "#!/bin/sh\nexit 1\n")
	environment = append(environment, "PATH="+filepath.Join(folder, "path")+":"+os.Getenv("PATH"))
	output, code := run(t, environment, filepath.Join(folder, "tools", "build"), "--arch="+another(), "one")
	for _, part := range []string{"cannot compile C for " + another(), triplet + "-gcc", "run tools/install-packages build cross-" + another()} {
		if code == 0 || !strings.Contains(output, part) {
			t.Errorf("exit %d, no %q in: %s", code, part, output)
		}
	}
}

// TestCross checks what was built for arm64: it needs nothing of the system, and an emulator runs it.
func TestCross(t *testing.T) {
	program := testkit.Tool(t, "arm64/ebpf_exporter")
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); f.Machine != elf.EM_AARCH64 || err != nil || len(libraries) > 0 {
		t.Errorf("a program for %s that needs %v (%v)", f.Machine, libraries, err)
	}
	want := ""
	list, _ := run(t, nil, "./build", "--list")
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "ebpf_exporter" {
			want = "version " + fields[1]
		}
	}
	output, code := run(t, nil, testkit.Tool(t, "qemu-aarch64"), program, "--version")
	if code != 0 || want == "" || !strings.Contains(output, want) || !strings.Contains(output, "linux/arm64") {
		t.Errorf("pinned %s, the program prints (exit %d): %s", want, code, output)
	}
}

func TestOneFailureLosesOnlyItself(t *testing.T) {
	folder, environment := project(t)
	write(t, filepath.Join(folder, "one", "main.go"), "package main\n\nfunc main() { undeclared() }\n")
	output, code := run(t, environment, filepath.Join(folder, "tools", "build"), "one", "two")
	if code == 0 {
		t.Errorf("exit 0 although one does not compile")
	}
	for _, part := range []string{"tools/build: one: ", "undefined: undeclared", "see the log", filepath.Join(folder, "cache", "one")} {
		if !strings.Contains(output, part) {
			t.Errorf("no %q in: %s", part, output)
		}
	}
	if two := built(t, folder, "two"); two != "1.2.3" {
		t.Errorf("two prints %q", two)
	}
	if _, err := os.Lstat(filepath.Join(folder, "build", "bin", "one")); err == nil {
		t.Error("build/bin has a program that was not built")
	}
}

func TestModuleThatCannotBeDownloaded(t *testing.T) {
	folder, environment := project(t)
	write(t, filepath.Join(folder, "tools", "one", "go.mod"), "module example.org/tools/one\n\ngo 1.26.0\n\nrequire example.org/one v1.2.3\n")
	write(t, filepath.Join(folder, "tools", "one", "go.sum"), "example.org/one v1.2.3 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"+
		"example.org/one v1.2.3/go.mod h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	output, code := run(t, environment, filepath.Join(folder, "tools", "build"), "one")
	if code == 0 || !strings.Contains(output, "check the network and GOPROXY") {
		t.Errorf("exit %d: %s", code, output)
	}
}

func TestSimultaneousBuilds(t *testing.T) {
	folder, environment := project(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if output, code := run(t, environment, filepath.Join(folder, "tools", "build"), "one", "two"); code != 0 {
				t.Errorf("exit %d: %s", code, output)
			}
		})
	}
	group.Wait()
	if one, two := built(t, folder, "one"), built(t, folder, "two"); one != "1.2.3" || two != "1.2.3" {
		t.Errorf("one prints %q, two prints %q", one, two)
	}
	// One key's folder and log, and the lock: no half-built program, no progress pipe.
	for _, name := range []string{"one", "two"} {
		entries, err := os.ReadDir(filepath.Join(folder, "cache", name))
		if err != nil || len(entries) != 3 {
			t.Errorf("the cache of %s holds %v (%v)", name, entries, err)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	folder, environment := project(t)
	script := filepath.Join(folder, "tools", "build")
	for _, test := range []struct {
		name        string
		arguments   []string
		environment []string
		want        string
	}{
		{"nothing to build", nil, nil, "Usage: tools/build"},
		{"an unknown option", []string{"--fast"}, nil, "Usage: tools/build"},
		{"an unknown program", []string{"three"}, nil, "no program three; there are: one two"},
		{"an unknown architecture", []string{"--arch=vax", "one"}, nil, "--arch=vax: no such architecture; there are: "},
		{"a cache it cannot write", []string{"one"}, []string{"PLUMBLINE_CACHE=/dev/null/x"}, "cannot write /dev/null/x: set PLUMBLINE_CACHE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			output, code := run(t, append(environment, test.environment...), script, test.arguments...)
			if code == 0 || !strings.Contains(output, test.want) {
				t.Errorf("exit %d: %s", code, output)
			}
		})
	}
}

// TestGo: which go command tools/go chooses, with a cache that already has the toolchain it would download.
func TestGo(t *testing.T) {
	for _, test := range []struct {
		installed string
		own       bool
	}{
		{"go1.26.0", true},
		{"go1.26.12", true},
		{"go1.30.1", true},
		{"go1.26", false},
		{"go1.24.4", false},
		{"go1.19.8", false},
		{"", false},
	} {
		name := test.installed
		if name == "" {
			name = "none"
		}
		t.Run(name, func(t *testing.T) {
			folder, environment := project(t)
			script, err := os.ReadFile("go")
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(script), "readonly pinned=")
			pinned, _, _ := strings.Cut(rest, "\n")
			cached := filepath.Join(folder, "cache", "go", "go"+pinned, "bin")
			write(t, filepath.Join(cached, "go"), "#!/bin/sh\n")
			// A PATH with what the script calls, and with no other go.
			own := filepath.Join(folder, "own")
			for _, name := range []string{"bash", "dirname", "sed", "sort", "head"} {
				path, err := exec.LookPath(name)
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(own, name), "#!/bin/sh\nexec "+path+" \"$@\"\n")
			}
			if test.installed != "" {
				write(t, filepath.Join(own, "go"), "#!/bin/sh\necho go version "+test.installed+" linux/amd64\n")
			}
			want := cached
			if test.own {
				want = own
			}
			output, code := run(t, append(environment, "PATH="+own), filepath.Join(folder, "tools", "go"), "path")
			if code != 0 || strings.TrimSpace(output) != want {
				t.Errorf("exit %d, %q; want %q", code, output, want)
			}
		})
	}
}

// TestMissingPackages: which packages of a group tools/install-packages takes for missing, against a made-up dpkg.
func TestMissingPackages(t *testing.T) {
	for _, test := range []struct {
		name      string
		installed string
		want      string
	}{
		{"nothing there", "", "gcc postgresql-[1-9]*|postgresql llvm-14|llvm"},
		{"all there", "installed gcc\ninstalled postgresql\ninstalled llvm\n", ""},
		{"another version of the server will do", "installed gcc\ninstalled postgresql-17\ninstalled llvm-14\n", ""},
		{"its client is not the server", "installed gcc\ninstalled postgresql-client-17\ninstalled llvm-14\n", "postgresql-[1-9]*|postgresql"},
		{"a removed package's configuration is no package", "config-files gcc\ninstalled postgresql\ninstalled llvm\n", "gcc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			script, err := os.ReadFile("install-packages")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(folder, "install-packages"), string(script))
			write(t, filepath.Join(folder, "packages"), "# comment\nbuild gcc # why\nbuild postgresql-[1-9]*|postgresql # why\nbuild llvm-14|llvm # why\nother fio # why\n")
			write(t, filepath.Join(folder, "bin", "dpkg-query"), "#!/bin/sh\ncat <<END\n"+test.installed+"END\n")
			write(t, filepath.Join(folder, "bin", "apt-get"), "#!/bin/sh\nexit 1\n")
			output, code := run(t, []string{"PATH=" + filepath.Join(folder, "bin") + ":" + os.Getenv("PATH")}, filepath.Join(folder, "install-packages"), "--print", "build")
			if got := strings.Join(strings.Fields(output), " "); code != 0 || got != test.want {
				t.Errorf("exit %d, %q; want %q", code, got, test.want)
			}
		})
	}
	if output, code := run(t, nil, "./install-packages", "--print", "nosuch"); code == 0 || !strings.Contains(output, "no group nosuch") {
		t.Errorf("an unknown group: exit %d: %s", code, output)
	}
}

// TestPackagesHaveReasons: every line of tools/packages is a group, a package and why.
func TestPackagesHaveReasons(t *testing.T) {
	content, err := os.ReadFile("packages")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		names, reason, _ := strings.Cut(line, "#")
		if len(strings.Fields(names)) != 2 || strings.TrimSpace(reason) == "" {
			t.Errorf("not a group, a package and a reason: %q", line)
		}
	}
}

func TestShellcheck(t *testing.T) {
	if output, code := run(t, nil, testkit.Tool(t, "shellcheck"), "build", "go", "libbpf", "sysroot", "unstable", "install-packages", "docs"); code != 0 {
		t.Error(output)
	}
}
