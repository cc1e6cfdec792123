package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// mirror makes a PATH whose apt-get has made-up packages of Debian: each name with a file's path, of arm64. It writes the lines of
// the sources that it is given, and its arguments, into files of the folder.
func mirror(t *testing.T, packages map[string]string) (folder string, environment []string) {
	t.Helper()
	testkit.Tool(t, "dpkg-deb")
	folder = t.TempDir()
	for name, file := range packages {
		tree := filepath.Join(folder, name)
		write(t, filepath.Join(tree, file), name)
		write(t, filepath.Join(tree, "etc", name+".conf"), "of "+name)
		control := "Package: " + name + "\nVersion: 1\nArchitecture: arm64\nMaintainer: Nobody <nobody@localhost>\nDescription: none\n of note\n"
		if strings.HasPrefix(name, "lib") {
			control += "Multi-Arch: same\n"
		}
		write(t, filepath.Join(tree, "DEBIAN", "control"), control)
		write(t, filepath.Join(tree, "DEBIAN", "conffiles"), "/etc/"+name+".conf\n")
		write(t, filepath.Join(tree, "DEBIAN", "preinst"), "#!/bin/sh\ntouch "+folder+"/ran\n")
		write(t, filepath.Join(tree, "DEBIAN", "postinst"), "#!/bin/sh\ntouch "+folder+"/ran\n")
		sums, err := exec.Command("sh", "-euc", `cd "$1"; md5sum "$2" >DEBIAN/md5sums; dpkg-deb --build . "$1.deb"`, "sh", tree, file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, sums)
		}
	}
	write(t, filepath.Join(folder, "path", "apt-get"), `#!/bin/bash
set -e
work= archives=.
for a; do
	case $a in
	Dir::Etc::sourcelist=*) cp "${a#*=}" `+folder+`/sources ;;
	Dir::Cache::archives=*) archives=${a#*=} ;;
	esac
done
case " $* " in
*' indextargets '*)
	echo 'Debian http://mirror.test/debian/ sid main'
	echo 'Debian http://mirror.test/debian-security/ sid-security main'
	echo 'Else http://else.test/debian/ sid main' ;;
*' update '*) [ ! -e `+folder+`/broken ] ;;
*' install '* | *' download '*) echo "$*" >`+folder+`/arguments; cp `+folder+`/*.deb "$archives" ;;
*) exit 1 ;;
esac
`)
	return folder, []string{"PATH=" + filepath.Join(folder, "path") + ":" + os.Getenv("PATH")}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSystem: packages with all that they depend on: dpkg knows them, and what is changed of them; nothing of theirs was run.
func TestSystem(t *testing.T) {
	// Those that have files in /lib and those that have them in /usr/lib meet in one folder.
	folder, environment := mirror(t, map[string]string{"libold": "lib/old.so", "libnew": "usr/lib/new.so", "tool": "usr/bin/tool"})
	root := filepath.Join(folder, "root")
	if output, code := run(t, environment, "./sysroot", "--with-dependencies", "arm64", root, "tool"); code != 0 || output != "" {
		t.Fatalf("exit %d: %s", code, output)
	}
	for _, file := range []string{"lib/old.so", "usr/lib/old.so", "lib/new.so", "bin/tool"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "ran")); err == nil {
		t.Error("a package's script was run")
	}
	sources := read(t, filepath.Join(folder, "sources"))
	if strings.Count(sources, "http://mirror.test/") != 2 || strings.Contains(sources, "else.test") || !strings.Contains(sources, "/debian-security/ sid-security main\n") {
		t.Errorf("sources are not the machine's own of its distribution: %s", sources)
	}
	dpkg := func(program string, arguments ...string) string {
		t.Helper()
		output, err := exec.Command(program, append([]string{"--root=" + root}, arguments...)...).CombinedOutput()
		if err != nil && program != "dpkg" {
			t.Errorf("%s %v: %v: %s", program, arguments, err, output)
		}
		return string(output)
	}
	if output := dpkg("dpkg-query", "--show", "--showformat=${Package} ${Architecture} ${Version} ${Status}\n"); output !=
		"libnew arm64 1 install ok installed\nlibold arm64 1 install ok installed\ntool arm64 1 install ok installed\n" {
		t.Errorf("dpkg knows: %s", output)
	}
	if output := dpkg("dpkg-query", "--search", "/lib/old.so", "/usr/bin/tool", "/etc/tool.conf"); !strings.Contains(output, "libold:arm64: /lib/old.so\n") || strings.Count(output, "tool") < 4 {
		t.Errorf("whose is what: %s", output)
	}
	if output := dpkg("dpkg-query", "--listfiles", "tool"); output != "/.\n/etc\n/etc/tool.conf\n/usr\n/usr/bin\n/usr/bin/tool\n" {
		t.Errorf("tool has: %s", output)
	}
	if output := dpkg("dpkg", "--verify"); output != "" {
		t.Errorf("as they came: %s", output)
	}
	write(t, filepath.Join(root, "usr/lib/old.so"), "other")
	write(t, filepath.Join(root, "etc/tool.conf"), "other")
	if output := dpkg("dpkg", "--verify"); !strings.Contains(output, " /lib/old.so\n") || !strings.Contains(output, " c /etc/tool.conf\n") || strings.Count(output, "\n") != 2 {
		t.Errorf("two files were changed: %s", output)
	}
	if output, code := run(t, environment, "./sysroot", "--with-dependencies", "arm64", root, "tool"); code == 0 || !strings.Contains(output, root+": it is there already and not empty") {
		t.Errorf("into a folder that is full (exit %d): %s", code, output)
	}
}

// TestSuite: only the packages that are named, of one suite of the archive.
func TestSuite(t *testing.T) {
	folder, environment := mirror(t, map[string]string{"tool": "usr/bin/tool"})
	root := filepath.Join(folder, "root")
	if output, code := run(t, environment, "./sysroot", "--suite=bookworm", "arm64", root, "tool"); code != 0 {
		t.Fatalf("exit %d: %s", code, output)
	}
	if text := read(t, filepath.Join(root, "usr/bin/tool")); text != "tool" {
		t.Errorf("the tool is %q", text)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("%v, beside the package's files: %v", err, entries)
	}
	if sources := read(t, filepath.Join(folder, "sources")); !strings.HasSuffix(sources, "http://mirror.test/debian/ bookworm main\n") || strings.Count(sources, "\n") != 1 {
		t.Errorf("sources: %s", sources)
	}
	if arguments := read(t, filepath.Join(folder, "arguments")); !strings.HasSuffix(arguments, " download tool\n") {
		t.Errorf("arguments: %s", arguments)
	}
}

// TestNoMirror: what cannot be had is named, and nothing half done is left.
func TestNoMirror(t *testing.T) {
	folder, environment := mirror(t, nil)
	write(t, filepath.Join(folder, "broken"), "")
	root := filepath.Join(folder, "in", "root")
	output, code := run(t, environment, "./sysroot", "--with-dependencies", "arm64", root, "tool")
	if code == 0 || !strings.Contains(output, "cannot read the lists of the suite of this machine for arm64: deb ") || !strings.Contains(output, "http://mirror.test/debian/ sid main") {
		t.Errorf("exit %d: %s", code, output)
	}
	for _, place := range []string{root, filepath.Dir(root)} {
		entries, err := os.ReadDir(place)
		for _, e := range entries {
			if err != nil || e.Name() != "root" {
				t.Errorf("%v, left in %s: %s", err, place, e.Name())
			}
		}
	}
	write(t, filepath.Join(folder, "path", "apt-get"), "#!/bin/sh\n")
	if output, code := run(t, environment, "./sysroot", "arm64", root, "tool"); code == 0 || !strings.Contains(output, "run apt-get update") {
		t.Errorf("without lists (exit %d): %s", code, output)
	}
	if output, code := run(t, nil, "./sysroot", "arm64", root); code != 2 || !strings.Contains(output, "Usage: tools/sysroot") {
		t.Errorf("without a package (exit %d): %s", code, output)
	}
}
