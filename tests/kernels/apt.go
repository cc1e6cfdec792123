package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// suites are Debian's that have kernels, from the oldest on. A suite that the mirror has no more is left out, with a
// warning.
var suites = []string{"bullseye", "bookworm", "trixie", "trixie-backports", "sid"}

// listsAge is how old the packages' lists may be.
const listsAge = 12 * time.Hour

// aptRoot is a private root of apt: its own lists, sources and (empty) state of installed packages. The machine's own
// apt, whose configuration, sources' addresses and keys it uses, is not touched.
type aptRoot struct {
	dir, arch string
	packages  map[string]bool // those with parts of kernels; kernels fills it
}

// openApt makes the root in dir and brings its lists up to date, if they are old.
func openApt(ctx context.Context, dir, arch string) (*aptRoot, error) {
	a := &aptRoot{dir: dir, arch: arch}
	for _, d := range []string{"etc/preferences.d", "etc/apt.conf.d", "state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	sources, err := debianSources("/etc/apt", suites)
	if err != nil {
		return nil, err
	}
	list, fresh := filepath.Join(dir, "etc/debian.sources"), filepath.Join(dir, "updated")
	old, _ := os.ReadFile(list)
	if i, err := os.Stat(fresh); err == nil && time.Since(i.ModTime()) < listsAge && string(old) == sources {
		return a, nil
	}
	if err := errors.Join(os.WriteFile(list, []byte(sources), 0o644), os.WriteFile(filepath.Join(dir, "status"), nil, 0o644)); err != nil {
		return nil, err
	}
	if _, err := a.run(ctx, "", "apt-get", "update"); err != nil {
		// One suite may be gone, the others are there.
		if lists, _ := filepath.Glob(filepath.Join(dir, "state/lists/*_Packages*")); len(lists) == 0 {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "kernels: not all suites could be read:", err)
		return a, nil
	}
	return a, os.WriteFile(fresh, nil, 0o644)
}

// run runs one of apt's programs in a folder and returns its output.
func (a *aptRoot) run(ctx context.Context, folder, program string, args ...string) (string, error) {
	options := []string{}
	for _, o := range []string{
		"Dir::Etc=" + a.dir + "/etc", "Dir::Etc::sourcelist=debian.sources", "Dir::Etc::sourceparts=-",
		// The machine's own keys: sources that name none are signed by these.
		"Dir::Etc::trusted=/etc/apt/trusted.gpg", "Dir::Etc::trustedparts=/etc/apt/trusted.gpg.d",
		"Dir::State=" + a.dir + "/state", "Dir::State::status=" + a.dir + "/status", "Dir::Cache=" + a.dir + "/cache",
		"APT::Architecture=" + a.arch, "APT::Architectures=" + a.arch, "Acquire::Languages=none", "Acquire::GzipIndexes=true",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", "Acquire::Retries=3",
		// The cache is in root's home, where apt's own user may not go.
		"APT::Sandbox::User=root",
	} {
		options = append(options, "-o", o)
	}
	c := exec.CommandContext(ctx, program, append(options, args...)...)
	c.Dir = folder
	c.Env = append(os.Environ(), "LC_ALL=C")
	var out, failed bytes.Buffer
	c.Stdout, c.Stderr = &out, &failed
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(failed.Bytes()))
	}
	return out.String(), nil
}

// kernels returns all kernels of the architecture's plain flavour that the suites have in full, the newest last.
func (a *aptRoot) kernels(ctx context.Context) ([]kernel, error) {
	// Lists packages, where others list names that something only depends on, too.
	output, err := a.run(ctx, "", "apt-cache", "search", "--names-only", "^linux-(base|binary|image|modules)-[0-9]")
	if err != nil {
		return nil, err
	}
	a.packages = map[string]bool{}
	for line := range strings.Lines(output) {
		name, _, _ := strings.Cut(line, " ")
		a.packages[name] = true
	}
	var found []kernel
	for name := range a.packages {
		release, ok := strings.CutPrefix(name, "linux-image-")
		if !ok || a.packages["linux-binary-"+release] != a.packages["linux-modules-"+release] {
			continue // a mirror may have one part and no longer the other
		}
		if k, ok := parseKernel(release, a.arch); ok {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no package linux-image-*-%s in the suites %s of the machine's mirror", a.arch, strings.Join(suites, ", "))
	}
	slices.SortFunc(found, kernel.compare)
	return found, nil
}

// download puts a kernel's packages, those with its image and its modules, into a folder.
func (a *aptRoot) download(ctx context.Context, k kernel, folder string) error {
	packages := []string{"linux-image-" + k.release}
	// From 6.19 on the image's package is an empty one that depends on these.
	for _, part := range []string{"linux-base-", "linux-binary-", "linux-modules-"} {
		if a.packages[part+k.release] {
			packages = append(packages, part+k.release)
		}
	}
	_, err := a.run(ctx, folder, "apt-get", append([]string{"download"}, packages...)...)
	return err
}

// debianSources returns a list of other suites of the archive that the machine itself installs from: its address and
// key are those of the first source in apt's folder that has the machine's own suite.
func debianSources(folder string, suites []string) (string, error) {
	files, _ := filepath.Glob(filepath.Join(folder, "sources.list.d/*.sources"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		for stanza := range strings.SplitSeq(string(text), "\n\n") {
			if uri, signed := readStanza(stanza); uri != "" {
				return writeSources(uri, signed, suites), nil
			}
		}
	}
	files, _ = filepath.Glob(filepath.Join(folder, "sources.list.d/*.list"))
	for _, f := range append([]string{filepath.Join(folder, "sources.list")}, files...) {
		text, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		for line := range strings.Lines(string(text)) {
			if uri, signed := readLine(line); uri != "" {
				return writeSources(uri, signed, suites), nil
			}
		}
	}
	return "", fmt.Errorf("no source of Debian's archive (a path that ends in /debian) in %s", folder)
}

// isArchive reports whether an address is of Debian's own archive, and not of one beside it such as its security
// updates.
func isArchive(uri string) bool { return strings.HasSuffix(strings.TrimRight(uri, "/"), "/debian") }

// readStanza takes address and key out of a deb822 stanza; none if it is not of Debian's archive.
func readStanza(stanza string) (uri, signed string) {
	fields := map[string]string{}
	for line := range strings.Lines(stanza) {
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
			fields[strings.ToLower(name)] = strings.TrimSpace(value)
		}
	}
	for u := range strings.FieldsSeq(fields["uris"]) {
		if isArchive(u) && !strings.EqualFold(fields["enabled"], "no") {
			return u, fields["signed-by"]
		}
	}
	return "", ""
}

// readLine does the same with a line of the older format.
func readLine(line string) (uri, signed string) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
	if !ok {
		return "", ""
	}
	if options, after, ok := strings.Cut(rest, "]"); ok && strings.HasPrefix(strings.TrimSpace(options), "[") {
		rest = after
		for o := range strings.FieldsSeq(strings.Trim(options, " [")) {
			if key, ok := strings.CutPrefix(o, "signed-by="); ok {
				signed = key
			}
		}
	}
	if f := strings.Fields(rest); len(f) > 0 && isArchive(f[0]) {
		return f[0], signed
	}
	return "", ""
}

func writeSources(uri, signed string, suites []string) string {
	var text strings.Builder
	for _, s := range suites {
		fmt.Fprintf(&text, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n", uri, s)
		if signed != "" {
			fmt.Fprintf(&text, "Signed-By: %s\n", signed)
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}
