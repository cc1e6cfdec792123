package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// kernel is one of Debian's.
type kernel struct {
	// series is how a user selects it, such as 6.12; release is the kernel's own name, such as 6.12.107+deb13-amd64.
	series, release string
	numbers         []int
}

var numeral = regexp.MustCompile(`[0-9]+`)

// parseKernel takes the release of a package's name apart; not those of other flavours (cloud, rt, unsigned, dbg).
func parseKernel(release, arch string) (kernel, bool) {
	m := regexp.MustCompile(`^([0-9]+\.[0-9]+)[0-9.]*([-+][0-9a-z.+~]+)?-` + arch + `$`).FindStringSubmatch(release)
	if m == nil || m[2] == "-cloud" || m[2] == "-rt" {
		return kernel{}, false
	}
	k := kernel{series: m[1], release: release}
	for _, n := range numeral.FindAllString(strings.TrimSuffix(release, arch), -1) {
		i, err := strconv.Atoi(n)
		if err != nil {
			return kernel{}, false
		}
		k.numbers = append(k.numbers, i)
	}
	return k, true
}

func (k kernel) compare(other kernel) int { return slices.Compare(k.numbers, other.numbers) }

// choose returns the newest kernel of each wanted series, in the same order. "newest" is the newest of all, "all" the
// newest of every series, and one that is named twice is there once. One that is not there is an error that names those
// that are.
func choose(have []kernel, wanted []string) ([]kernel, error) {
	newest, order := map[string]kernel{}, []string{}
	for _, k := range have {
		if _, ok := newest[k.series]; !ok {
			order = append(order, k.series)
		}
		newest[k.series] = k
	}
	var chosen []kernel
	for _, w := range wanted {
		switch k, ok := newest[w]; {
		case w == "newest" && len(have) > 0:
			chosen = append(chosen, have[len(have)-1])
		case w == "all":
			for _, s := range order {
				chosen = append(chosen, newest[s])
			}
		case ok:
			chosen = append(chosen, k)
		default:
			return nil, fmt.Errorf("no kernel %q; there are: %s, newest, all", w, strings.Join(order, " "))
		}
	}
	// Named twice, as by its series and as the newest, it is measured once: its folder is one.
	seen := map[string]bool{}
	return slices.DeleteFunc(chosen, func(k kernel) bool {
		again := seen[k.release]
		seen[k.release] = true
		return again
	}), nil
}

// store is the cache of kernels, unpacked, one folder each.
type store struct {
	dir, arch string
	apt       *aptRoot
}

// openStore opens the cache of an architecture's kernels.
func openStore(arch string) (*store, error) {
	cache := os.Getenv("PLUMBLINE_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(home, "plumbline")
	}
	s := &store{dir: filepath.Join(cache, "kernels", arch), arch: arch}
	return s, os.MkdirAll(s.dir, 0o755)
}

// lock keeps others away from a part of the cache, the lists or the kernels, until the function that it returns is
// called.
func (s *store) lock(part string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(s.dir, part+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// list returns what kernels there are, the newest last: the mirror's, else, if it cannot be reached, those of the
// cache.
func (s *store) list(ctx context.Context) ([]kernel, error) {
	unlock, err := s.lock("lists")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.apt, err = openApt(ctx, filepath.Join(s.dir, "apt"), s.arch); err == nil {
		return s.apt.kernels(ctx)
	}
	s.apt = nil
	folders, _ := os.ReadDir(s.dir)
	var have []kernel
	for _, f := range folders {
		if k, ok := parseKernel(f.Name(), s.arch); ok {
			have = append(have, k)
		}
	}
	if len(have) == 0 {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "kernels: only what is in the cache:", err)
	slices.SortFunc(have, kernel.compare)
	return have, nil
}

// folder returns where a kernel lies unpacked, and downloads it first if it is not in the cache. Older ones of its
// series go.
func (s *store) folder(ctx context.Context, k kernel, logf func(string, ...any)) (string, error) {
	unlock, err := s.lock("kernels")
	if err != nil {
		return "", err
	}
	defer unlock()
	folder := filepath.Join(s.dir, k.release)
	if _, err := os.Stat(folder); err == nil || s.apt == nil {
		return folder, err
	}
	// What a killed run left: no other process uses it now.
	left, _ := filepath.Glob(filepath.Join(s.dir, "new-*"))
	for _, l := range left {
		os.RemoveAll(l)
	}
	logf("downloading Debian's %s", k.release)
	temporary, err := os.MkdirTemp(s.dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	if err := s.apt.download(ctx, k, temporary); err != nil {
		return "", err
	}
	unpacked := filepath.Join(temporary, "unpacked")
	if err := unpack(ctx, k, temporary, unpacked); err != nil {
		return "", err
	}
	s.forget(k)
	return folder, os.Rename(unpacked, folder)
}

// forget removes kernels of the same series.
func (s *store) forget(k kernel) {
	folders, _ := os.ReadDir(s.dir)
	for _, f := range folders {
		if other, ok := parseKernel(f.Name(), s.arch); ok && other.series == k.series {
			os.RemoveAll(filepath.Join(s.dir, f.Name()))
		}
	}
}

// unpack unpacks a kernel's packages in one folder to another: vmlinuz and lib/modules/RELEASE.
func unpack(ctx context.Context, k kernel, packages, to string) error {
	debs, _ := filepath.Glob(filepath.Join(packages, "*.deb"))
	for _, d := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", d, to).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb -x %s: %w: %s", d, err, out)
		}
	}
	// Newer packages have usr/lib, which depmod and modprobe do not look for below another root.
	if _, err := os.Stat(filepath.Join(to, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Symlink("usr/lib", filepath.Join(to, "lib")); err != nil {
			return err
		}
	}
	image := filepath.Join(to, "boot/vmlinuz-"+k.release)
	if _, err := os.Stat(image); err != nil {
		image = filepath.Join(to, "lib/modules", k.release, "vmlinuz")
	}
	if err := os.Rename(image, filepath.Join(to, "vmlinuz")); err != nil {
		return fmt.Errorf("the packages of %s have no image: %w", k.release, err)
	}
	if out, err := exec.CommandContext(ctx, "/sbin/depmod", "-b", to, k.release).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, out)
	}
	return nil
}

// modules returns the files of modules and of what they need, in the order to load them. What is built in is left out.
func modules(folder, release string, names ...string) ([]string, error) {
	base := filepath.Join(folder, "lib/modules", release)
	text, err := os.ReadFile(filepath.Join(base, "modules.dep"))
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(base, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	files, needs := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(string(text)) {
		file, rest, _ := strings.Cut(line, ":")
		files[moduleName(file)] = file
		needs[file] = strings.Fields(rest)
	}
	var load []string
	add := func(f string) {
		if f = filepath.Join(base, f); !slices.Contains(load, f) {
			load = append(load, f)
		}
	}
	for _, n := range names {
		file, ok := files[n]
		if !ok {
			if !slices.ContainsFunc(strings.Fields(string(builtin)), func(b string) bool { return moduleName(b) == n }) {
				return nil, fmt.Errorf("kernel %s has no module %s", release, n)
			}
			continue
		}
		// Each file's list has what is needed first at its end.
		for _, f := range slices.Backward(needs[file]) {
			add(f)
		}
		add(file)
	}
	return load, nil
}

// moduleName is a module's name, by its file's.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
