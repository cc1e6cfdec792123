package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// names are packages as suites have them.
var names = []string{"6.1.0-50-amd64", "6.1.0-47-amd64", "6.1.0-50-cloud-amd64", "6.1.0-50-rt-amd64", "6.12.94+deb13-amd64",
	"6.12.107+deb13-amd64", "6.12.107+deb13-cloud-amd64", "6.12.107+deb13-amd64-dbg", "6.12.107+deb13-amd64-unsigned", "5.10.0-32-amd64",
	"7.3.4+deb13-amd64", "7.2.13+deb14-amd64", "6.12.107+deb13-arm64", "amd64", "cloud-amd64"}

func kernelsOf(t *testing.T) []kernel {
	t.Helper()
	var have []kernel
	for _, n := range names {
		if k, ok := parseKernel(n, "amd64"); ok {
			have = append(have, k)
		}
	}
	slices.SortFunc(have, kernel.compare)
	return have
}

func releases(kernels []kernel) (names []string) {
	for _, k := range kernels {
		names = append(names, k.release)
	}
	return names
}

func TestParseKernel(t *testing.T) {
	want := []string{"5.10.0-32-amd64", "6.1.0-47-amd64", "6.1.0-50-amd64", "6.12.94+deb13-amd64", "6.12.107+deb13-amd64",
		"7.2.13+deb14-amd64", "7.3.4+deb13-amd64"}
	if got := releases(kernelsOf(t)); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct{ wanted, want string }{
		{"6.12 6.1", "6.12.107+deb13-amd64 6.1.0-50-amd64"},
		{"newest", "7.3.4+deb13-amd64"},
		{"7.3 6.1 newest", "7.3.4+deb13-amd64 6.1.0-50-amd64"},
		{"all", "5.10.0-32-amd64 6.1.0-50-amd64 6.12.107+deb13-amd64 7.2.13+deb14-amd64 7.3.4+deb13-amd64"},
	} {
		got, err := choose(kernelsOf(t), strings.Fields(c.wanted))
		if err != nil || strings.Join(releases(got), " ") != c.want {
			t.Errorf("%s: got %q, %v", c.wanted, releases(got), err)
		}
	}
	if _, err := choose(kernelsOf(t), []string{"6.5"}); err == nil || !strings.Contains(err.Error(), `"6.5"`) || !strings.Contains(err.Error(), "6.12") {
		t.Errorf("a kernel that is not there: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSources(t *testing.T) {
	const want = "Types: deb\nURIs: http://mirror/debian\nSuites: one\nComponents: main\nSigned-By: /key\n\n" +
		"Types: deb\nURIs: http://mirror/debian\nSuites: two\nComponents: main\nSigned-By: /key\n\n"
	for what, files := range map[string]map[string]string{
		"deb822": {
			"sources.list": "# moved\n",
			"sources.list.d/a.sources": "Types: deb\nURIs: http://elsewhere/tools\nSuites: x\n\n# Comment: URIs\nTypes: deb\nURIs: http://mirror/debian-security\n" +
				"Suites: y\n\nTypes: deb\n#URIs: http://old/debian\nURIs: http://mirror/debian\nSuites: z\nSigned-By: /key\n",
		},
		"deb822, one of them not in use": {
			"sources.list.d/a.sources": "Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: z\n\nTypes: deb\nURIs: http://mirror/debian\nSigned-By: /key\n",
		},
		"lines": {"sources.list": "#deb http://old/debian a main\ndeb http://mirror/debian-security s main\ndeb [ arch=amd64 signed-by=/key ] http://mirror/debian a main\n"},
	} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range files {
				write(t, filepath.Join(folder, name), text)
			}
			if got, err := debianSources(folder, []string{"one", "two"}); err != nil || got != want {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
	if _, err := debianSources(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "no source of Debian's archive") {
		t.Errorf("without any: %v", err)
	}
}

func TestModules(t *testing.T) {
	folder := t.TempDir()
	base := filepath.Join(folder, "lib/modules/r")
	write(t, filepath.Join(base, "modules.dep"), "kernel/a-b.ko.xz: kernel/c.ko kernel/d.ko\nkernel/c.ko: kernel/d.ko\nkernel/d.ko:\nkernel/e.ko: kernel/d.ko\n")
	write(t, filepath.Join(base, "modules.builtin"), "kernel/in-side.ko\n")
	got, err := modules(folder, "r", "a_b", "in_side", "e")
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = strings.TrimPrefix(got[i], base+"/kernel/")
	}
	if want := []string{"d.ko", "c.ko", "a-b.ko.xz", "e.ko"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := modules(folder, "r", "none"); err == nil || !strings.Contains(err.Error(), "no module none") {
		t.Errorf("a module that is not there: %v", err)
	}
}

// What is packed is found again by the format's description.
func TestArchive(t *testing.T) {
	a := archive{}
	a.add("dir", 0o040755, nil)
	a.add("dir/odd", 0o100644, []byte("12345"))
	a.add("even", 0o100755, []byte("12345678"))
	a.add("TRAILER!!!", 0, nil)
	got := map[string]string{}
	for rest := a.Bytes(); len(rest) > 0; {
		if string(rest[:6]) != "070701" {
			t.Fatalf("no header at %d: %q", a.Len()-len(rest), rest[:6])
		}
		size, name := field(t, rest, 6), field(t, rest, 11)
		begin := (110 + name + 3) &^ 3
		got[string(rest[110:110+name-1])] = string(rest[begin : begin+size])
		rest = rest[(begin+size+3)&^3:]
	}
	if want := map[string]string{"dir": "", "dir/odd": "12345", "even": "12345678", "TRAILER!!!": ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

// field reads a header's field of eight hexadecimal digits.
func field(t *testing.T, header []byte, n int) int {
	t.Helper()
	value := 0
	for _, c := range header[6+8*n : 14+8*n] {
		digit := strings.IndexByte("0123456789ABCDEF", c)
		if digit < 0 {
			t.Fatalf("field %d is no number: %q", n, header[6+8*n:14+8*n])
		}
		value = 16*value + digit
	}
	return value
}
